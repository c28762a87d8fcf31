"""Filters: of the changes of a table those that a condition is true of, and those that cannot be asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final
from uuid import UUID

from tailrace_schemas.errors import DecodeError, SettingsError
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece
from tailrace_spark.merge.row_filter import first_match
from tailrace_spark.shaping.change_predicate import ChangePredicate
from tailrace_spark.shaping.conditions import ChangeConditions

SETTING: Final = "stream.where"

Newest = Callable[[Table, int], Table]
"""The newest definition of a table, of which this one was announced at an offset: its names are the condition's."""


class MetDefinitions:
    """The newest definition of each table that was met."""

    def __init__(self) -> None:
        self._newest: dict[UUID, tuple[int, Table]] = {}

    def __call__(self, table: Table, announced: int) -> Table:
        newest = self._newest.get(table.id)
        if newest is None or newest[0] < announced:
            newest = self._newest[table.id] = announced, table
        return newest[1]


@dataclass(frozen=True, slots=True)
class TaskFilters:
    """The conditions of a stream, as they go to tasks. With `written` they may ask for what a change writes."""

    conditions: ChangeConditions
    written: bool


class Filters:
    """Leaves changes out by conditions, by pattern of keyspace and table; the first pattern that matches counts.

    With `written` they may ask for the columns that a change writes. `left_out` counts, by "keyspace.table", what was
    left out of the batch that is being taken. The driver has one, and each task.
    """

    def __init__(self, conditions: ChangeConditions, *, written: bool, newest: Newest | None = None) -> None:
        self.conditions = conditions
        self.written = written
        self._newest = MetDefinitions() if newest is None else newest
        self._predicates: dict[int, tuple[Table, ChangePredicate | SettingsError | None]] = {}
        self.left_out: Counter[str] = Counter()

    def unmatched(self, tables: Iterable[Table]) -> list[str]:
        """The patterns that match none of these tables."""
        names = [str(table) for table in tables]
        return [pattern for pattern, _ in self.conditions if not any(fnmatchcase(name, pattern) for name in names)]

    def check(self, table: Table, announced: int = -1) -> None:
        """Raise SettingsError where the table has a condition that cannot be asked of its changes.

        Of definitions of a table the one with the larger `announced` says the names, here and of later changes.
        """
        predicate = self._predicate(table, announced)
        if isinstance(predicate, SettingsError):
            raise predicate

    def filtered(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """The pieces without what is left out. Changes of a table that does not fit are dead letters."""
        self.left_out.clear()
        for piece in pieces:
            letters = list(piece.dead_letters)
            passed = tuple(delivered for delivered in piece.changes if self._passes(delivered, letters))
            yield Piece(passed, tuple(letters))

    def _passes(self, delivered: Delivered, letters: list[DeadLetter]) -> bool:
        predicate = self._predicate(delivered.change.table, delivered.announced)
        if predicate is None:
            return True
        if isinstance(predicate, SettingsError):
            letters.append(DeadLetter(delivered.record_id, str(predicate), delivered.message))
            return False
        try:
            passes = predicate.passes(delivered.change)
        except (DecodeError, ValueError):
            # Their words may have the value.
            why = f"{SETTING} cannot be evaluated of it: a value is none of its column's type"
            letters.append(DeadLetter(delivered.record_id, why, delivered.message))
            return False
        if not passes:
            self.left_out[str(delivered.change.table)] += 1
        return passes

    def _predicate(self, table: Table, announced: int) -> ChangePredicate | SettingsError | None:
        """Tables are compared by identity: to compare all of them takes longer than to look at a change."""
        entry = self._predicates.get(id(table))
        if entry is None:
            newest = self._newest(table, announced)
            if newest is table:  # its earlier definitions have its names from now on
                self._predicates = {
                    key: existing for key, existing in self._predicates.items() if existing[0].id != table.id
                }
            entry = self._predicates[id(table)] = table, self._new_predicate(newest)  # the table stays, and its id
        return entry[1]

    def _new_predicate(self, table: Table) -> ChangePredicate | SettingsError | None:
        condition = first_match(self.conditions, table)
        if condition is None:
            return None
        try:
            return ChangePredicate(condition, table, written=self.written)
        except SettingsError as error:
            return error
