"""Names in the sink's database: unique where it folds case, short enough where it has a limit."""

from __future__ import annotations

from collections.abc import Callable, Collection
from hashlib import blake2b
from typing import Final

import sqlalchemy as sa

CATALOG: Final = sa.MetaData()
"""The tables that are there once in a database, whatever is followed."""
# Ours stand beside a table's columns and behind its name.
KEY: Final = "__key"
CLUSTERING: Final = "__clustering"
# What `clustering` of the state table starts with: see sql_state.
PARTITION: Final = b"\x00"
STATIC: Final = b"\x01"
RANGE: Final = b"\x02"
ROW: Final = b"\x03"
END: Final = b"\x04"
SUFFIXES: Final = ("__rows", "__static", "__state", "__by_key", "__by_expiry", "__by_purge", "__heads")
# PostgreSQL names the indexes of primary keys by itself.
_INDEXES: Final = ("__rows_pkey", "__static_pkey", "__state_pkey")


def fit(name: str, limit: int) -> str:
    """The name itself, or its head and a hash of all of it, in at most `limit` bytes of UTF-8."""
    if len(name.encode()) <= limit:
        return name
    digest = blake2b(name.encode(), digest_size=4).hexdigest()
    return name.encode()[: limit - 9].decode(errors="ignore") + "_" + digest


def claim(name: str, limit: int, taken: Collection[str], needs: Callable[[str], frozenset[str]] | None = None) -> str:
    """A name that is free: `name`, else `name_2`, `name_3`, ...; `taken` holds names in lower case.

    It is free when none of what it `needs`, in lower case, is taken: by default itself alone.
    """
    wanted = free = fit(name, limit)
    number = 1
    while not (needs(free) if needs else {free.lower()}).isdisjoint(taken):
        number += 1
        free = fit(wanted, limit - len(str(number)) - 1) + f"_{number}"
    return free


def objects(name: str) -> frozenset[str]:
    """The names, in lower case, of all that a source table called `name` may need: view, tables, indexes.

    Tables, views and indexes share their names in both databases.
    """
    return frozenset((name + suffix).lower() for suffix in ("", *SUFFIXES, *_INDEXES))


def table_name(name: str, limit: int, taken: Collection[str]) -> str:
    """A name for a source table whose objects are all free; it leaves room for the suffixes of its tables."""
    return claim(name, limit - max(map(len, SUFFIXES)), taken, objects)
