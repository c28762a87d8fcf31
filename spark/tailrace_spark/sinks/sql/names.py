"""Names in the sink's database: unique where it folds case, short enough where it has a limit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final
from uuid import UUID

from tailrace_common.sections.template import fit
from tailrace_spark.sinks.naming import claim

LONGEST: Final[Mapping[str, int]] = {"sqlite": 255, "postgresql": 63, "mysql": 64}
"""Bytes of UTF-8 that a name has in each dialect; MySQL's are characters. SQLite knows no limit."""

# Ours stand behind the name of a source table.
SUFFIXES: Final = ("__rows", "__static", "__state", "__by_key", "__by_expiry", "__by_purge", "__heads")
# PostgreSQL names the indexes of primary keys by itself.
_INDEXES: Final = ("__rows_pkey", "__static_pkey", "__state_pkey")


def objects(name: str) -> frozenset[str]:
    """The names, in lower case, of all that a source table called `name` may need: view, tables, indexes.

    Tables, views and indexes share their names in both databases.
    """
    return frozenset((name + suffix).lower() for suffix in ("", *SUFFIXES, *_INDEXES))


def table_name(name: str, limit: int, used: Collection[str]) -> str:
    """A name for a source table whose objects are all free; it leaves room for the suffixes of its tables."""
    return claim(name, _room(limit), used, objects)


def closed_name(name: str, table_id: UUID, limit: int) -> str:
    """The name that a table gets whose source was dropped, as far as it is free: its end says so, however long."""
    suffix = f"__dropped_{table_id.hex[:8]}"
    return fit(name, _room(limit) - len(suffix)) + suffix


def wished_name(template: str, keyspace: str, table: str, dialect: str) -> str:
    """The name that a source table gets where it is free."""
    name = template.format(keyspace=keyspace, table=table)
    if dialect == "sqlite" and name.lower().startswith("sqlite_"):
        name = "_" + name  # SQLite keeps these to itself
    return table_name(name, LONGEST[dialect], ())


def _room(limit: int) -> int:
    return limit - max(map(len, SUFFIXES))
