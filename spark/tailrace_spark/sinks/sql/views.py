"""The view of each source table, which users read: created, replaced and widened as the layout changes."""

from __future__ import annotations

import logging
from typing import Final

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from tailrace_spark.sinks.naming import KEY
from tailrace_spark.sinks.sql.layout import Layout, Target, view_query
from tailrace_spark.sinks.sql.types import SqlType
from tailrace_spark.sinks.state_store.dialects import MYSQL

log = logging.getLogger("tailrace_spark")

_IN_USE: Final = "2BP01"  # PostgreSQL: dependent objects still exist


class Views:
    """Writes views in the caller's transaction."""

    def __init__(self, dialect: sa.Dialect) -> None:
        self._dialect = dialect

    def create(self, connection: sa.Connection, target: Target) -> None:
        """Create the view of a target, which MySQL may have already."""
        create = "CREATE OR REPLACE VIEW" if self._dialect.name == MYSQL else "CREATE VIEW"
        query = view_query(target.layout, target.rows, target.static)
        self._execute(connection, create, target.layout.name, query)

    def drop(self, connection: sa.Connection, name: str) -> None:
        """Drop the view of a name."""
        connection.exec_driver_sql(f"DROP VIEW {self._quote(name)}")

    def replace(self, connection: sa.Connection, target: Target, old: Layout) -> None:
        """Replace the view. Where others' views build on it, it is widened instead, and keeps dropped columns.

        PostgreSQL neither drops a view that others use nor lets it lose a column; the others know no such ties.
        """
        if self._dialect.name == MYSQL:  # it would commit, and forget its savepoints
            self.create(connection, target)
            return
        try:
            with connection.begin_nested():
                self.drop(connection, target.layout.name)
                self.create(connection, target)
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != _IN_USE:
                raise
            self._widen(connection, target, old)

    def _widen(self, connection: sa.Connection, target: Target, old: Layout) -> None:
        name = target.layout.name
        pairs = zip(old.columns, target.layout.columns, strict=False)
        renamed = [(was.shown, now.shown) for was, now in pairs if was.shown != now.shown]
        between = [(f"{KEY}_{i}", now) for i, (_, now) in enumerate(renamed)]  # names may have changed places
        for was, now in [*((was, free) for (was, _), (free, _) in zip(renamed, between, strict=True)), *between]:
            change = f"ALTER TABLE {self._quote(name)} RENAME COLUMN {self._quote(was)} TO {self._quote(now)}"
            connection.exec_driver_sql(change)
        new = view_query(target.layout, target.rows, target.static).subquery("shown")
        specs = {column.shown: SqlType(column.spec) for column in target.layout.columns}
        existing = [column["name"] for column in sa.inspect(connection).get_columns(name)]
        columns = [
            new.c[column] if column in new.c else sa.cast(sa.null(), specs[column]).label(column) for column in existing
        ]
        query = sa.select(*columns, *[column for column in new.c if column.name not in existing])
        self._execute(connection, "CREATE OR REPLACE VIEW", name, query)
        log.warning("view %s: other views depend on it, so new columns come last and dropped ones stay empty", name)

    def _execute(self, connection: sa.Connection, create: str, name: str, query: sa.SelectBase) -> None:
        text = query.compile(dialect=self._dialect, compile_kwargs={"literal_binds": True})
        connection.exec_driver_sql(f"{create} {self._quote(name)} AS {text}")

    def _quote(self, name: str) -> str:
        return self._dialect.identifier_preparer.quote(name)
