"""What migrations do to tables, again where a crash came between: MySQL keeps each statement, and not the revision.

So a migration may find what it makes, and the next start goes on behind that.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op


def create_table(name: str, *items: sa.schema.SchemaItem, **options: Any) -> None:
    """Make a table, unless it is there with these columns. Another's of that name the database refuses."""
    columns = {item.name for item in items if isinstance(item, sa.Column)}
    inspector = sa.inspect(op.get_bind())
    existing = {column["name"] for column in inspector.get_columns(name)} if inspector.has_table(name) else set()
    if existing != columns:
        op.create_table(name, *items, **options)


def drop_table(name: str) -> None:
    """Drop a table, if it is there."""
    op.drop_table(name, if_exists=True)
