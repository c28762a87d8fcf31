"""Why nothing of a table is published, by the tables that Cassandra has."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

_LISTED: Final = 3


@dataclass(frozen=True, slots=True)
class Unpublished:
    """Why, and what to do."""

    reason: str
    action: str


def why_unpublished(pattern: str, tables: Mapping[str, bool]) -> Unpublished:
    """Of a table, or of all that fit a pattern with * and ?; `tables` are Cassandra's by name, and whether with cdc."""
    fitting = sorted(name for name in tables if fnmatchcase(name, pattern))
    with_cdc = [name for name in fitting if tables[name]]
    if with_cdc:
        return Unpublished(
            f"no agent has published anything of {_listed(with_cdc)} yet",
            "start an agent beside each node; `tailrace check` there says whether tables.include selects the table",
        )
    if fitting:
        several = len(fitting) > 1
        statements = "; ".join(f"ALTER TABLE {name} WITH cdc = true" for name in fitting[:_LISTED])
        return Unpublished(f"{_listed(fitting)} {'have' if several else 'has'} no cdc", statements)
    close = difflib.get_close_matches(pattern, tables, n=1)
    action = f"did you mean {close[0]}?" if close else "make it WITH cdc = true, or correct the name"
    return Unpublished(f"there is no such table: {pattern}", action)


def _listed(names: list[str]) -> str:
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")
