"""Which tables are published: patterns, and how they fit the tables of a cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from tailrace_schemas.system_tables import system_tables
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


@dataclass(frozen=True, slots=True)
class Coverage:
    """How a selection fits a cluster's tables; all tuples are sorted names or patterns.

    `selected`: tables with cdc = true that are published. `untaken`: those that no pattern takes, neither of `include`
    nor of `exclude`. `excluded`: those that `exclude` leaves out. `unmatched`: patterns of `include` that match no
    table, with or without cdc. `without_cdc`: those that match only tables without cdc. `unmatched_exclude`: patterns
    of `exclude` that match no table. `names` are all tables of users.
    """

    selected: tuple[str, ...]
    untaken: tuple[str, ...]
    excluded: tuple[str, ...]
    unmatched: tuple[str, ...]
    without_cdc: tuple[str, ...]
    unmatched_exclude: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def selects_nothing(self) -> bool:
        """Whether tables have cdc = true, and none of them is published."""
        return not self.selected and bool(self.untaken or self.excluded)

    def untaken_words(self) -> str:
        """The tables that no pattern takes, in a clause; empty where there are none."""
        if not self.untaken:
            return ""
        have, pronoun = ("has", "it") if len(self.untaken) == 1 else ("have", "them")
        return f"{listed(self.untaken)} {have} cdc = true, but no pattern of tables.include matches {pronoun}"

    def unmatched_words(self) -> tuple[str, ...]:
        """A clause for each pattern of `include` that matches no table, with the nearest one that does."""
        return tuple(
            f'tables.include: "{pattern}" matches no table{self._nearest(pattern)}' for pattern in self.unmatched
        )

    def _nearest(self, pattern: str) -> str:
        keyspaces = {f"{name.partition('.')[0]}.*" for name in self.names}
        nearest = get_close_matches(pattern, [*sorted(keyspaces), *self.names], n=1)
        return f' (did you mean "{nearest[0]}"?)' if nearest else ""


def coverage(selection: Selection, tables: Iterable[Table]) -> Coverage:
    """How a selection fits these tables; those of Cassandra's own keyspaces do not count."""
    system = {table.keyspace for table in system_tables()}
    users = {str(table): table.cdc for table in tables if table.keyspace not in system}
    cdc = sorted(name for name, flag in users.items() if flag)
    excluded = [name for name in cdc if matches(selection.exclude, name)]
    selected = [name for name in cdc if matches(selection.include, name) and name not in excluded]
    # A pattern of wildcards alone, such as the default *.*, names nothing that could be mistyped.
    specific = [pattern for pattern in selection.include if set(pattern) - set("*?.")]
    unmatched = _unmatched(specific, users)
    return Coverage(
        selected=tuple(selected),
        untaken=tuple(name for name in cdc if name not in {*selected, *excluded}),
        excluded=tuple(excluded),
        unmatched=unmatched,
        without_cdc=tuple(pattern for pattern in _unmatched(specific, cdc) if pattern not in unmatched),
        unmatched_exclude=_unmatched(selection.exclude, users),
        names=tuple(sorted(users)),
    )


def listed(names: Sequence[str], limit: int = 10) -> str:
    """Names with commas; of many, the first ones and how many more."""
    left_out = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {left_out} more" if left_out > 0 else "")


def matches(patterns: Iterable[str], name: str) -> bool:
    """Whether one of the patterns fits a name, "keyspace.table"."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _unmatched(patterns: Iterable[str], names: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted(p for p in patterns if not any(fnmatchcase(name, p) for name in names)))
