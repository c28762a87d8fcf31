"""What commands print: data on stdout (a table on a terminal, JSON lines when piped), words on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.table import Table as RichTable

from tailrace_common.secrets import redact


def on_terminal() -> bool:
    """Whether stdout is a terminal, so that a person reads it."""
    return sys.stdout.isatty()


def say(words: str) -> None:
    """Words for the person, on stderr, without secrets."""
    print(redact(words), file=sys.stderr, flush=True)


def print_json(record: object) -> None:
    """One JSON line on stdout, flushed, so that a reader of a pipe sees it at once."""
    print(json.dumps(record, default=_plain, ensure_ascii=False), flush=True)


def print_rows(
    rows: Iterable[Mapping[str, object]],
    *,
    title: str | None = None,
    always_json: bool = False,
    empty: str | None = None,
) -> None:
    """Rows of the same keys: a table with the keys as heads on a terminal, else or `always_json` one JSON line each.

    `empty`: the words for a list without rows, on stderr.
    """
    if always_json or not on_terminal():
        count = 0
        for row in rows:
            print_json(dict(row))
            count += 1
        _say_empty(count, empty)
        return
    table: RichTable | None = None
    for row in rows:
        if table is None:
            table = RichTable(title=title, title_justify="left")
            for name in row:
                table.add_column(name, overflow="fold")  # values are data: never cut short
        table.add_row(*(_cell(value) for value in row.values()))
    if table is not None:
        Console(markup=False, highlight=False).print(table)
    _say_empty(0 if table is None else table.row_count, empty)


def _say_empty(count: int, words: str | None) -> None:
    if count == 0 and words is not None:
        say(words)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, default=_plain, ensure_ascii=False)
    return str(_plain(value))


def _plain(value: object) -> object:
    """What JSON has no form for: bytes as hex, sets as sorted lists, everything else (UUID, path) as its text."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)
