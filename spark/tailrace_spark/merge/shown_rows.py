"""Which rows of a table readers see, where a filter asks for columns outside the key: the one rule of all stores.

A row is asked for as the store has it: the values that its state shows, a plain change alone, or cells merged as bytes.
A row that is not shown is stored all the same. This module is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tailrace_schemas.change import Change
from tailrace_schemas.cql.coding import Codec
from tailrace_schemas.cql.values import codec
from tailrace_schemas.table import Column, Table
from tailrace_spark.merge.condition import RowFilters, RowPredicate, predicate_of
from tailrace_spark.rowstate.plain import PlainRow

_LONG_AGO: Final = -(2**63) - 1


class _AskedColumn:
    """A column that the filter asks for: its place among what it asks for, and when its name was last dropped."""

    def __init__(self, slot: int, column: Column, dropped_at: int) -> None:
        self.slot = slot
        self.dropped_at = dropped_at
        self.codec: Codec = codec(column.type)


class ShownRows:
    """The filter of a table's rows, by one definition of it."""

    def __init__(self, predicate: RowPredicate, table: Table) -> None:
        indexes = {column.name: index for index, column in enumerate(table.regular)}
        dropped = {drop.column.name_bytes: drop.dropped_at for drop in table.dropped}
        self._predicate = predicate
        self._indexes: list[int] = [indexes[column.name] for column in predicate.columns]
        self._asked: dict[bytes, _AskedColumn] = {
            column.name_bytes: _AskedColumn(slot, column, dropped.get(column.name_bytes, _LONG_AGO))
            for slot, column in enumerate(predicate.columns)
        }

    def shows(self, values: Sequence[object]) -> bool:
        """Whether readers see a row whose regular columns, in their order, have these values."""
        return self._predicate.holds([values[index] for index in self._indexes])

    def shows_change(self, change: Change, written: int) -> bool:
        """The same of a row that a plain change (rowstate.plain), written at `written`, makes alone."""
        values: list[object] = [None] * len(self._indexes)
        for cell in change.cells:
            if cell.value is not None:
                self._put(values, cell.column.name_bytes, written, cell.value)
        return self._predicate.holds(values)

    def shows_cells(self, row: PlainRow) -> bool:
        """The same of a row that was merged as bytes."""
        values: list[object] = [None] * len(self._indexes)
        for index in range(len(row.names)):
            self._put(values, row.names[index], row.times[index], row.values[index])
        return self._predicate.holds(values)

    def _put(self, values: list[object], name: bytes, written: int, value: bytes) -> None:
        column = self._asked.get(name)
        # A cell from before its column was last dropped is no data of it.
        if column is not None and written > column.dropped_at:
            values[column.slot] = column.codec.decode(value)


def shown_rows(filters: RowFilters, table: Table) -> ShownRows | None:
    """Which rows of a table are shown; None: all. Raises SettingsError where a filter does not fit the definition."""
    predicate = predicate_of(filters, table)
    return None if predicate is None else ShownRows(predicate, table)
