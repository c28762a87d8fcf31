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
    if _columns(name) != columns:
        op.create_table(name, *items, **options)


def add_column(table: str, column: sa.Column[Any]) -> None:
    """Give a table a column, unless it has it."""
    if column.name not in _columns(table):
        op.add_column(table, column)


def widen(table: str, column: str, wider: sa.types.TypeEngine[str]) -> None:
    """Give the texts of a column more room. SQLite has room for any, and alters no column."""
    if op.get_bind().dialect.name != "sqlite":
        op.alter_column(table, column, type_=wider, existing_nullable=False)


def drop_table(name: str) -> None:
    """Remove a table that may be gone."""
    op.drop_table(name, if_exists=True)


def _columns(table: str) -> set[str]:
    inspector = sa.inspect(op.get_bind())
    return {column["name"] for column in inspector.get_columns(table)} if inspector.has_table(table) else set()
