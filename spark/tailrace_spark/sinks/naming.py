"""Names in a sink's store: of our own columns, and free ones where it folds case."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from tailrace_common.sections.template import fit

# Ours stand beside a table's columns.
KEY: Final = "__key"
CLUSTERING: Final = "__clustering"


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
