"""Names in the sink's database: unique where it folds case, short enough where it has a limit."""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b

# Ours stand beside a table's columns and behind its name.
KEY = "__key"
CLUSTERING = "__clustering"
SUFFIXES = ("__rows", "__static", "__state", "__by_key")


def fit(name: str, limit: int) -> str:
    """The name itself, or its head and a hash of all of it, in at most `limit` bytes of UTF-8."""
    if len(name.encode()) <= limit:
        return name
    digest = blake2b(name.encode(), digest_size=4).hexdigest()
    return name.encode()[: limit - 9].decode(errors="ignore") + "_" + digest


def claim(name: str, limit: int, taken: Collection[str]) -> str:
    """A name that is free: `name`, else `name_2`, `name_3`, ...; `taken` holds names in lower case."""
    wanted = free = fit(name, limit)
    number = 1
    while free.lower() in taken:
        number += 1
        free = fit(wanted, limit - len(str(number)) - 1) + f"_{number}"
    return free


def table_name(name: str, limit: int, taken: Collection[str]) -> str:
    """A free name for a source table that leaves room for the suffixes of its tables."""
    return claim(name, limit - max(map(len, SUFFIXES)), taken)
