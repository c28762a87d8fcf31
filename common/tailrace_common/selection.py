"""Which tables are published."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tailrace_schemas.table import Table


@dataclass(frozen=True, slots=True)
class Selection:
    """Which tables are published, of those with cdc = true: patterns of "keyspace.table" with * and ?."""

    include: tuple[str, ...] = ("*.*",)
    exclude: tuple[str, ...] = ()

    def wants(self, table: Table) -> bool:
        """Whether a pattern includes the table and none excludes it."""
        name = str(table)
        return matches(self.include, name) and not matches(self.exclude, name)


def matches(patterns: Iterable[str], name: str) -> bool:
    """Whether one of the patterns fits a name, "keyspace.table"."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
