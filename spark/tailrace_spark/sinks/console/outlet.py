"""Changes on stdout: tables for people, JSON lines for programs."""

from __future__ import annotations

import json
from typing import Final, TextIO

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from tailrace_schemas.change import record_times
from tailrace_schemas.change_json import edit_words, key_words, time_words
from tailrace_schemas.errors import SettingsError
from tailrace_spark.batch.delivery import DeadLetter, MicroBatch, RecordId, Summary
from tailrace_spark.sinks.changelog.sink import Batch, OutgoingRecord
from tailrace_spark.sinks.letters import LOGGED, Letters

_HEADS: Final = ("written", "op", "table", "key", "columns", "topic/partition/offset")
_STYLES: Final = {"insert": "green", "update": "cyan", "read": "dim"}
# A table is as wide as its widest cell, so that it has to be known whole; memory holds this many rows.
_TABLE_ROWS: Final = 500
_LONGEST_CELL: Final = 2_000


class ConsoleOutlet:
    """Prints to `out`: a table for each batch (each 500 changes of it) where `tables` are wanted, else JSON lines.

    A batch that comes again is printed again: each line says its place.
    """

    def __init__(self, out: TextIO, letters: Letters = LOGGED, *, tables: bool) -> None:
        self._out = out
        self._letters = letters
        self._tables = tables

    def reach(self) -> None:
        """There is nothing to reach."""

    def begin(self, batch: MicroBatch) -> Batch:
        """As Outlet says."""
        del batch
        return _Tables(self._out, self._letters) if self._tables else _Lines(self._out, self._letters)

    def close(self) -> None:
        """stdout stays open."""


class _Lines(Batch):
    """A JSON object each: changes, and dead letters, which have a `reason`."""

    def __init__(self, out: TextIO, letters: Letters) -> None:
        super().__init__()
        self._out = out
        self._letters = letters
        self._rows = 0

    def put(self, record: OutgoingRecord) -> None:
        self._print(record.value)
        self._rows += 1

    def set_aside(self, letter: DeadLetter) -> None:
        super().set_aside(letter)
        self._print(letter.to_json())

    def _print(self, value: dict[str, object]) -> None:
        _guarded(self._out, json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")

    def commit(self) -> Summary:
        _guarded(self._out, "")
        self._letters.put(self.aside)
        return Summary(rows=self._rows, dead_letters=len(self.aside))


class _Tables(Batch):
    def __init__(self, out: TextIO, letters: Letters) -> None:
        super().__init__()
        self._out = out
        self._letters = letters
        self._shown: list[tuple[Text, ...]] = []
        self._rows = 0

    def put(self, record: OutgoingRecord) -> None:
        change, style = record.change, _STYLES.get(record.change.op.value, "red")
        cells = (
            time_words(record_times(change)[0]),
            change.op.value,
            str(change.table),
            key_words(change.table, record.record),
            edit_words(change.table, record.record),
            _place(record.record_id),
        )
        self._rows += 1
        self._show(tuple(Text(_cut(cell), style=style) for cell in cells))

    def set_aside(self, letter: DeadLetter) -> None:
        super().set_aside(letter)
        cells = ("", "dead letter", "", "", json.dumps(letter.reason), _place(letter.record_id))
        self._show(tuple(Text(cell, style="bold red") for cell in cells))

    def _show(self, row: tuple[Text, ...]) -> None:
        self._shown.append(row)
        if len(self._shown) >= _TABLE_ROWS:
            self._print()

    def _print(self) -> None:
        table = RichTable()
        for head in _HEADS:
            table.add_column(head, overflow="fold")
        for row in self._shown:
            table.add_row(*row)
        self._shown.clear()
        console = Console(file=self._out, markup=False, highlight=False)
        with console.capture() as captured:
            console.print(table)
        _guarded(self._out, captured.get())

    def commit(self) -> Summary:
        if self._shown:
            self._print()
        self._letters.put(self.aside)
        return Summary(rows=self._rows, dead_letters=len(self.aside))

    def abandon(self) -> None:
        self._shown.clear()


def _cut(cell: str) -> str:
    """The cell, or its beginning and how much it is: to wrap megabytes takes half a minute."""
    return cell if len(cell) <= _LONGEST_CELL else f"{cell[:_LONGEST_CELL]}... ({len(cell)} characters)"


def _place(record_id: RecordId) -> str:
    return f"{record_id.topic}/{record_id.partition}/{record_id.offset}"


def _guarded(out: TextIO, text: str) -> None:
    """Write, and flush with no text. Whoever read has gone for good: the stream ends, rather than try again."""
    try:
        out.write(text)
        if not text:
            out.flush()
    except BrokenPipeError:
        raise SettingsError("nobody reads stdout any more: the console sink ends") from None
