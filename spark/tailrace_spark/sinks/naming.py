"""Names in a sink's store: of our own columns, short enough where it has a limit, free where it folds case."""

from __future__ import annotations

from collections.abc import Callable, Collection
from hashlib import blake2b
from typing import Final

# Ours stand beside a table's columns.
KEY: Final = "__key"
CLUSTERING: Final = "__clustering"


def fit(name: str, limit: int) -> str:
    """The name itself, or its head and a hash of all of it, in at most `limit` bytes of UTF-8."""
    if len(name.encode()) <= limit:
        return name
    digest = blake2b(name.encode(), digest_size=4).hexdigest()
    return name.encode()[: limit - 9].decode(errors="ignore") + "_" + digest


def claim(name: str, limit: int, used: Collection[str], needs: Callable[[str], frozenset[str]] | None = None) -> str:
    """A name that is free: `name`, else `name_2`, `name_3`, ...; `used` holds names in lower case.

    It is free when none of what it `needs`, in lower case, is taken: by default itself alone.
    """
    fitting = free = fit(name, limit)
    suffix = 1
    while not (needs(free) if needs else {free.lower()}).isdisjoint(used):
        suffix += 1
        free = fit(fitting, limit - len(str(suffix)) - 1) + f"_{suffix}"
    return free
