"""What migrations do to tables, again where a crash came between: MySQL keeps each statement, and not the revision.

So a migration may find what it makes, and the next start goes on behind that.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from tailrace_server.meta.tables import long_text


def create_table(name: str, *items: sa.schema.SchemaItem, **options: Any) -> None:
    """Make a table, unless it is there with these columns. Another's of that name the database refuses."""
    columns = {item.name for item in items if isinstance(item, sa.Column)}
    if _columns(name) != columns:
        op.create_table(name, *items, **options)


def add_column(table: str, column: sa.Column[Any]) -> None:
    """Give a table a column, unless it has it."""
    if column.name not in _columns(table):
        op.add_column(table, column)


def rename_column(table: str, column: str, name: str) -> None:
    """Give a column another name, unless it has it."""
    if name not in _columns(table):
        op.alter_column(table, column, new_column_name=name, existing_type=long_text(), existing_nullable=False)


def fill_column(table: str, column: str, value: str) -> None:
    """Give all rows this value in a column."""
    op.execute(sa.update(sa.table(table, sa.column(column))).values({column: value}))


def drop_column(table: str, column: str) -> None:
    """Remove a column that may be gone."""
    if column in _columns(table):
        op.drop_column(table, column)


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
