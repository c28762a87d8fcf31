"""Filters: of the changes of a table those that a condition is true of, and those that cannot be asked.

The columns of the primary key stand under their names; `change` says what kind of change it is. Where a filter may ask
for them, `columns` has what the change writes, null where it writes nothing. A key column called like one of these two
hides it. Pure.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Final
from uuid import UUID

from tailrace_schemas.change import Change, record_times
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import Codec, codec, split_key
from tailrace_schemas.errors import DecodeError, SettingsError
from tailrace_schemas.table import Column, Table
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece
from tailrace_spark.merge.condition import Name, Operand, Test, UnfitError, column_of, first_match, names_in, test_of
from tailrace_spark.shaping.conditions import ChangeCondition, ChangeConditions

CHANGE: Final = "change"
COLUMNS: Final = "columns"
_Read = Callable[[Change], object]
_FIELDS: Final[Mapping[str, tuple[CqlType, _Read]]] = {
    "op": (CqlType("text"), lambda change: change.op.value),
    "keyspace": (CqlType("text"), lambda change: change.table.keyspace),
    "table": (CqlType("text"), lambda change: change.table.name),
    # In milliseconds, as all values of the type; write times have microseconds.
    "written": (CqlType("timestamp"), lambda change: Fraction(record_times(change)[0], 1000)),
    "ttl": (CqlType("int"), lambda change: record_times(change)[1]),
    "static": (CqlType("boolean"), lambda change: change.static),
    "origin": (CqlType("text"), lambda change: None if change.source is None else change.source.origin.value),
}
SETTING: Final = "stream.where"

Newest = Callable[[Table, int], Table]
"""The newest definition of a table, of which this one was announced at an offset: its names are the condition's."""


def known_key_columns(change: Change) -> int:
    """The number of leading primary key columns that are the same in all rows of a change.

    Of a deleted range those that both of its ends begin with; of a truncation none.
    """
    if change.key is None:
        return 0
    if change.clustering is not None:
        return len(change.table.key)
    count = len(change.table.partition_key)
    if change.start is not None and change.end is not None:
        for start, end in zip(change.start.values, change.end.values, strict=False):
            if start != end:
                break
            count += 1
    return count


class ChangePredicate:
    """Whether changes of a table pass. `table` is its newest definition: names are of that one, also in older changes.

    With `written`, `columns` is there too: of the columns that are not in the key, those that are one cell.
    """

    def __init__(self, condition: ChangeCondition, table: Table, *, written: bool) -> None:
        """Raises SettingsError for a name or a constant that does not fit."""
        self._table = table
        self._written = written
        names = {column.name.lower() for column in table.key}
        self._structs = [name for name in ((CHANGE, COLUMNS) if written else (CHANGE,)) if name not in names]
        # By place in the key, and by name: each has a slot among the values.
        self._key: dict[int, tuple[int, Codec]] = {}
        self._reads: dict[str, tuple[int, _Read]] = {}
        try:
            self._parts: list[tuple[int, Test]] = [
                (max(map(self._asks, names_in(node)), default=0), test_of(node, self._operand))
                for node in condition.parts
            ]
        except UnfitError as error:
            raise SettingsError(f"{table}: {condition.setting}: {condition.text!r}: {error}") from None

    def passes(self, change: Change) -> bool:
        """Whether every part is true that asks only for what is known of the change.

        Raises DecodeError, or ValueError, for a value that is none of its column's type.
        """
        known_count = known_key_columns(change)
        tests = [test for asks, test in self._parts if asks <= known_count]
        if not tests:
            return True
        values: list[object] = [None] * (len(self._key) + len(self._reads))
        if self._key:
            key_values = _key_values(change, known_count)
            for index, (slot, of) in self._key.items():
                value = key_values[index] if index < known_count else None
                values[slot] = None if value is None else of.decode(value)
        for slot, read in self._reads.values():
            values[slot] = read(change)
        return all(test(values) is True for test in tests)

    def _asks(self, name: Name) -> int:
        """How many leading key columns have to be known for a name."""
        column = self._key_column(name)
        return 0 if column is None else self._table.key.index(column) + 1

    def _key_column(self, name: Name) -> Column | None:
        return column_of(self._table.key, name[0]) if len(name) == 1 else None

    def _operand(self, name: Name) -> Operand:
        if (key_column := self._key_column(name)) is not None:
            slot, _ = self._key.setdefault(self._table.key.index(key_column), (self._next, codec(key_column.type)))
            return Operand(slot, key_column.type, key_column.name)

        struct = name[0].lower()
        if len(name) != 2 or struct not in self._structs:
            raise UnfitError(self._unknown(name))
        full_name, of, read = (_field if struct == CHANGE else self._written_column)(name)
        slot, _ = self._reads.setdefault(full_name, (self._next, read))
        return Operand(slot, of, full_name)

    @property
    def _next(self) -> int:
        """The slot of the next value."""
        return len(self._key) + len(self._reads)

    def _written_column(self, name: Name) -> tuple[str, CqlType, _Read]:
        plain = tuple(
            column for column in self._table.columns if not column.type.multicell and column.type.kind != "counter"
        )
        column = column_of(plain, name[1])
        if column is None:
            listed = ", ".join(column.name for column in plain)
            raise UnfitError(f"{'.'.join(name)}: {COLUMNS} has {listed or 'nothing'}")
        return f"{COLUMNS}.{column.name}", column.type, _cell_of(column)

    def _unknown(self, name: Name) -> str:
        words, table = ".".join(name), self._table
        may_ask = [*(column.name for column in table.key), *self._structs]
        if name[0].lower() == COLUMNS and COLUMNS not in self._structs:
            return f"{words}: only a change log without images may ask for what a change writes"
        if any(column.name.lower() == words.lower() for column in table.columns):
            if self._written:
                return f"{words} is not of the key of {table}: ask for columns.{words}, which is what a change writes"
            return (
                f"{words} is not of the key of {table}: of other columns a change has only what it writes, so no "
                f"table could follow the filter. It may ask for {', '.join(may_ask)}"
            )
        close = difflib.get_close_matches(words, may_ask, n=1)
        hint = f"did you mean {close[0]}?" if close else f"it may ask for {', '.join(may_ask)}"
        return f"{table} has no column {words}; {hint}"


def _field(name: Name) -> tuple[str, CqlType, _Read]:
    field = name[1].lower()
    if field not in _FIELDS:
        raise UnfitError(f"{'.'.join(name)}: {CHANGE} has {', '.join(_FIELDS)}")
    return f"{CHANGE}.{field}", *_FIELDS[field]


def _key_values(change: Change, known_count: int) -> list[bytes | None]:
    """The values of the key's columns that are known."""
    values: list[bytes | None] = []
    if change.key is not None:
        values += split_key([column.type for column in change.table.partition_key], change.key)
    if change.clustering is not None:
        values += change.clustering
    elif change.start is not None:
        values += change.start.values[: known_count - len(values)]
    return values


def _cell_of(column: Column) -> _Read:
    """An older change may have a column of this name and another type, which was dropped: its bytes are of both."""
    decode = codec(column.type).decode

    def read(change: Change) -> object:
        for cell in change.cells:
            if cell.column.name_bytes == column.name_bytes and cell.path is None:
                return None if cell.value is None else decode(cell.value)
        return None

    return read


class MetDefinitions:
    """The newest definition of each table that was met."""

    def __init__(self) -> None:
        self._newest: dict[UUID, tuple[int, Table]] = {}

    def __call__(self, table: Table, announced: int) -> Table:
        newest = self._newest.get(table.id)
        if newest is None or newest[0] < announced:
            newest = self._newest[table.id] = announced, table
        return newest[1]


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
