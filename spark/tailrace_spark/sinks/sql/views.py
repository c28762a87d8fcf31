"""The view of each source table, which users read: created, replaced and widened as the layout changes.

PostgreSQL's rights, comments and options are those of a view, and other views are built on it. So there it is replaced
in place where its columns allow that, and else gets all that again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from tailrace_common.sections.template import KEY
from tailrace_spark.sinks.sql.layout import Layout, LayoutTables, view_query
from tailrace_spark.sinks.state_store.tables import MYSQL, POSTGRESQL

log = logging.getLogger("tailrace_spark")

# PostgreSQL: other objects depend on it; it cannot lose a column or change one in place.
_NOT_THIS_WAY: Final = ("2BP01", "42P16")
_COLUMNS: Final = """
    SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
    WHERE attrelid = CAST(:view AS regclass) AND attnum > 0 ORDER BY attnum"""
_SECURITY: Final = (
    "SELECT security_type FROM information_schema.views WHERE table_schema = database() AND table_name = :v"
)
# Each gives statements about the view :name, which is quoted: what :view has. The last one gives those that take from a
# new view what default privileges gave it.
_RIGHTS: Final = """
    WITH of_view AS (SELECT oid, relowner, relacl FROM pg_class WHERE oid = CAST(:view AS regclass)),
    of_columns AS (SELECT attname, attnum, attacl FROM of_view JOIN pg_attribute ON attrelid = oid
                   WHERE attnum > 0 AND attname = ANY(:columns)),
    rights AS (SELECT a.*, '' AS named FROM of_view, aclexplode(relacl) a
               UNION ALL
               SELECT a.*, ' (' || quote_ident(attname) || ')' FROM of_columns, aclexplode(attacl) a)
    SELECT 'GRANT ' || privilege_type || named || ' ON ' || :name || ' TO ' || coalesce(quote_ident(rolname), 'PUBLIC')
           || CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END
    FROM of_view, rights LEFT JOIN pg_roles ON pg_roles.oid = grantee WHERE grantee <> relowner"""
_COMMENTS: Final = """
    SELECT 'COMMENT ON ' || CASE objsubid WHEN 0 THEN 'VIEW ' || :name
                            ELSE 'COLUMN ' || :name || '.' || quote_ident(attname) END
           || ' IS ' || quote_literal(description)
    FROM pg_description LEFT JOIN pg_attribute ON attrelid = objoid AND attnum = objsubid AND attnum > 0
    WHERE classoid = CAST('pg_class' AS regclass) AND objoid = CAST(:view AS regclass)
      AND (objsubid = 0 OR attname = ANY(:columns))"""
_OPTIONS: Final = """
    SELECT 'ALTER VIEW ' || :name || ' SET (' || array_to_string(reloptions, ', ') || ')'
    FROM pg_class WHERE oid = CAST(:view AS regclass) AND reloptions IS NOT NULL"""
_OWNER: Final = """
    SELECT 'ALTER VIEW ' || :name || ' OWNER TO ' || quote_ident(rolname)
    FROM pg_class JOIN pg_roles ON pg_roles.oid = relowner
    WHERE pg_class.oid = CAST(:view AS regclass) AND rolname <> current_user"""
_BY_DEFAULT: Final = """
    SELECT DISTINCT 'REVOKE ALL ON ' || :name || ' FROM ' || coalesce(quote_ident(rolname), 'PUBLIC')
    FROM pg_class, aclexplode(relacl) LEFT JOIN pg_roles ON pg_roles.oid = grantee
    WHERE pg_class.oid = CAST(:name AS regclass) AND grantee <> relowner"""


class Views:
    """Writes views in the caller's transaction."""

    def __init__(self, dialect: sa.Dialect) -> None:
        self._dialect = dialect

    def create(self, connection: sa.Connection, tables: LayoutTables) -> None:
        """Create the view of a layout, which MySQL may have already."""
        create, name = "CREATE VIEW", tables.layout.name
        if self._dialect.name == MYSQL:
            security = connection.execute(sa.text(_SECURITY), {"v": name}).scalar()
            create = f"CREATE OR REPLACE {f'SQL SECURITY {security} ' if security else ''}VIEW"
        self._execute(connection, create, name, _query(tables))

    def drop(self, connection: sa.Connection, name: str) -> None:
        """Drop the view of a name; MySQL may have done so."""
        connection.exec_driver_sql(
            f"DROP VIEW {'IF EXISTS ' if self._dialect.name == MYSQL else ''}{self._quote(name)}"
        )

    def replace(self, connection: sa.Connection, tables: LayoutTables, old: Layout) -> None:
        """Replace the view. Where others' views build on it, it is widened instead, and keeps dropped columns.

        PostgreSQL neither drops a view that others use nor lets it lose a column; the others know no such ties.
        """
        if self._dialect.name == MYSQL:  # it would commit, and forget its savepoints
            self.create(connection, tables)
        elif self._dialect.name == POSTGRESQL:
            pairs = zip(old.columns, tables.layout.columns, strict=False)
            self._put(connection, tables, [(was.shown, now.shown) for was, now in pairs if was.shown != now.shown])
        else:
            self.drop(connection, old.name)
            self.create(connection, tables)

    def vacate(self, connection: sa.Connection, name: str) -> None:
        """Take a view off its tables, for the layout that takes its name. In PostgreSQL it stays, and shows no row."""
        if self._dialect.name != POSTGRESQL:
            self.drop(connection, name)
            return
        empty = self._empty_columns(connection, name).values()
        self._replace(connection, name, sa.select(*empty).where(sa.false()))

    def take(self, connection: sa.Connection, tables: LayoutTables) -> None:
        """Show a layout under a name that was vacated."""
        if self._dialect.name == POSTGRESQL:
            self._put(connection, tables, [])
        else:
            self.create(connection, tables)

    def create_like(self, connection: sa.Connection, tables: LayoutTables, name: str) -> None:
        """Create the view of a layout, with the rights that the view `name` has."""
        self.create(connection, tables)
        if self._dialect.name == POSTGRESQL:
            quoted = self._quote(tables.layout.name)
            rights = given_to(connection, self._quote(name), quoted, _query(tables).selected_columns.keys())
            give(connection, quoted, rights)

    def _put(self, connection: sa.Connection, tables: LayoutTables, renamed: Sequence[tuple[str, str]]) -> None:
        """Have an existing view show a layout."""
        name, query = tables.layout.name, _query(tables)
        for put in (self._replace, self._make_again):
            try:
                with connection.begin_nested():
                    put(connection, name, query)
                    return
            except DBAPIError as error:
                if getattr(error.orig, "sqlstate", None) not in _NOT_THIS_WAY:
                    raise
        self._widen(connection, name, query, renamed)

    def _replace(self, connection: sa.Connection, name: str, query: sa.SelectBase) -> None:
        options = options_of(connection, self._quote(name))
        self._execute(connection, "CREATE OR REPLACE VIEW", name, query)
        for statement in options:
            connection.exec_driver_sql(statement.replace("%", "%%"))

    def _make_again(self, connection: sa.Connection, name: str, query: sa.SelectBase) -> None:
        quoted = self._quote(name)
        given = given_to(connection, quoted, quoted, query.selected_columns.keys())
        self.drop(connection, name)
        self._execute(connection, "CREATE VIEW", name, query)
        give(connection, quoted, given)

    def _widen(
        self, connection: sa.Connection, name: str, query: sa.SelectBase, renamed: Sequence[tuple[str, str]]
    ) -> None:
        between = [(f"{KEY}_{i}", now) for i, (_, now) in enumerate(renamed)]  # names may have changed places
        for was, now in [*((was, free) for (was, _), (free, _) in zip(renamed, between, strict=True)), *between]:
            change = f"ALTER TABLE {self._quote(name)} RENAME COLUMN {self._quote(was)} TO {self._quote(now)}"
            connection.exec_driver_sql(change)
        new, existing = query.subquery("shown"), self._empty_columns(connection, name)
        columns = [new.c.get(shown, empty) for shown, empty in existing.items()]
        added = [column for column in new.c if column.name not in existing]
        self._replace(connection, name, sa.select(*columns, *added))
        log.warning("view %s: other views depend on it, so new columns come last and dropped ones stay empty", name)

    def _empty_columns(self, connection: sa.Connection, name: str) -> dict[str, sa.ColumnElement[Any]]:
        """The columns of a view by name, as ones of the same types without values."""
        rows = connection.execute(sa.text(_COLUMNS), {"view": self._quote(name)})
        return {column: sa.literal_column(f"CAST(NULL AS {kind})").label(column) for column, kind in rows}

    def _execute(self, connection: sa.Connection, create: str, name: str, query: sa.SelectBase) -> None:
        text = query.compile(dialect=self._dialect, compile_kwargs={"literal_binds": True})
        connection.exec_driver_sql(f"{create} {self._quote(name)} AS {text}")

    def _quote(self, name: str) -> str:
        return self._dialect.identifier_preparer.quote(name)


def _query(tables: LayoutTables) -> sa.SelectBase:
    return view_query(tables.layout, tables.rows, tables.static)


def options_of(connection: sa.Connection, view: str) -> list[str]:
    """Statements that give a view its options again, which CREATE OR REPLACE takes from it. Its name is quoted."""
    return _statements(connection, _OPTIONS, {"view": view, "name": view})


def given_to(connection: sa.Connection, view: str, name: str, columns: Iterable[str]) -> list[str]:
    """Statements that give the view `name`, which will have these columns, all that `view` has. Names are quoted."""
    values = {"view": view, "name": name, "columns": list(columns)}
    # The owner comes last: then nothing more can be given.
    return [
        statement
        for text in (_RIGHTS, _COMMENTS, _OPTIONS, _OWNER)
        for statement in _statements(connection, text, values)
    ]


def give(connection: sa.Connection, name: str, statements: Sequence[str]) -> None:
    """Give a new view this, and nothing else."""
    for statement in (*_statements(connection, _BY_DEFAULT, {"name": name}), *statements):
        connection.exec_driver_sql(statement.replace("%", "%%"))


def _statements(connection: sa.Connection, text: str, values: Mapping[str, object]) -> list[str]:
    used = {name: value for name, value in values.items() if f":{name}" in text}
    return list(connection.execute(sa.text(text), used).scalars())
