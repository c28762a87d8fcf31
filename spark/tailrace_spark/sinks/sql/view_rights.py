"""What people gave a view in PostgreSQL: rights, an owner, comments, options. A view that is made again gets it too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import sqlalchemy as sa

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


def options_of(connection: sa.Connection, view: str) -> list[str]:
    """Statements that give a view its options again, which CREATE OR REPLACE takes from it. Its name is quoted."""
    return _statements(connection, _OPTIONS, {"view": view, "name": view})


def given_to(connection: sa.Connection, view: str, name: str, columns: Iterable[str]) -> list[str]:
    """Statements that give the view `name`, which will have these columns, all that `view` has. Names are quoted."""
    values = {"view": view, "name": name, "columns": list(columns)}
    # The owner comes last: then nothing more can be given.
    return [one for text in (_RIGHTS, _COMMENTS, _OPTIONS, _OWNER) for one in _statements(connection, text, values)]


def give(connection: sa.Connection, name: str, statements: Sequence[str]) -> None:
    """Give a new view this, and nothing else."""
    for statement in (*_statements(connection, _BY_DEFAULT, {"name": name}), *statements):
        connection.exec_driver_sql(statement.replace("%", "%%"))


def _statements(connection: sa.Connection, text: str, values: Mapping[str, object]) -> list[str]:
    used = {name: value for name, value in values.items() if f":{name}" in text}
    return list(connection.execute(sa.text(text), used).scalars())
