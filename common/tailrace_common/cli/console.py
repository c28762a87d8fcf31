"""What commands print: data on stdout (a table on a terminal, JSON lines when piped), words on stderr."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from io import TextIOWrapper
from textwrap import wrap
from typing import Final, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable

from tailrace_common.secrets import redact

# Tabs and ends of lines are none here; what turns the direction of writing is one.
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_BORDER: Final = 3  # of a column: a line and a blank on each side


def on_terminal() -> bool:
    """Whether stdout is a terminal, so that a person reads it."""
    return sys.stdout.isatty()


def settle_output(stream: TextIO) -> None:
    """Make what is piped UTF-8, as JSON is, whatever the locale. What a stream cannot have becomes an escape.

    In UTF-8 that is a half of a surrogate pair, as of a file's name that is no text. The escape is JSON's own.
    """
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="backslashreplace")


def say(words: str) -> None:
    """Words for the person, on stderr, without secrets."""
    print(printable(redact(words)), file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """A text with ? for what would control a terminal: errors quote data, which may be anybody's."""
    return _CONTROLS.sub("?", text)


def print_json(record: object) -> None:
    """One JSON line on stdout, flushed, so that a reader of a pipe sees it at once."""
    print(json.dumps(record, default=_plain, ensure_ascii=False), flush=True)


def print_rows(
    rows: Iterable[Mapping[str, object]],
    *,
    title: str | None = None,
    headings: Mapping[str, str] | None = None,
    always_json: bool = False,
    empty: str | None = None,
) -> None:
    """Rows of the same keys: a table with the keys as heads on a terminal, else or `always_json` one JSON line each.

    A terminal that is too narrow for a table without broken words gets a block of lines for each row. `headings`: words
    for some of the keys, for people. `empty`: the words for a list without rows, on stderr.
    """
    if always_json or not on_terminal():
        count = 0
        for row in rows:
            print_json(dict(row))
            count += 1
        _say_empty(count, empty)
        return
    cells = [{(headings or {}).get(name, name): _cell(value) for name, value in row.items()} for row in rows]
    if cells:
        _print_table(cells, title)
    _say_empty(len(cells), empty)


def _print_table(rows: Sequence[Mapping[str, str]], title: str | None) -> None:
    console = Console(markup=False, highlight=False)
    columns = {name: [name, *(row[name] for row in rows)] for name in rows[0]}
    widths = _column_widths(list(columns.values()), console.width - _BORDER * len(columns) - 1)
    if widths is None:
        _print_blocks(console, rows, title)
        return
    table = RichTable(title=title, title_justify="left")
    for name, width in zip(columns, widths, strict=True):
        table.add_column(name, width=width, overflow="fold")
    for row in rows:
        table.add_row(*row.values())
    console.print(table)


def _column_widths(columns: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Widths that break no word, and fold the widest columns first; None where there is too little room for that."""
    least = [max(cell_len(word) for cell in cells for word in [*cell.split(), ""]) for cells in columns]
    widths = [max(cell_len(line) for cell in cells for line in [*cell.splitlines(), ""]) for cells in columns]
    if sum(least) > room:
        return None
    while (excess := sum(widths) - room) > 0:
        foldable = [index for index, width in enumerate(widths) if width > least[index]]
        widest = max(foldable, key=lambda index: widths[index])
        narrower = [widths[index] for index in foldable if index != widest]
        floor = max(least[widest], max(narrower, default=0) - 1)
        widths[widest] -= max(1, min(excess, widths[widest] - floor))
    return widths


def _print_blocks(console: Console, rows: Sequence[Mapping[str, str]], title: str | None) -> None:
    if title is not None:
        console.print(title)
    indent = max(cell_len(name) for name in rows[0]) + 2
    for index, row in enumerate(rows):
        if index:
            console.print()
        for name, cell in row.items():
            if lines := wrap(cell, max(1, console.width - indent), break_long_words=False, break_on_hyphens=False):
                console.print(f"{name:{indent}}{lines[0]}", soft_wrap=True)
                for line in lines[1:]:
                    console.print(f"{'':{indent}}{line}", soft_wrap=True)


def _say_empty(count: int, words: str | None) -> None:
    if count == 0 and words is not None:
        say(words)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list | tuple):
        return printable(json.dumps(value, default=_plain, ensure_ascii=False))
    return printable(str(_plain(value)))


def _plain(value: object) -> object:
    """What JSON has no form for: bytes as hex, sets as sorted lists, everything else (UUID, path) as its text."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)
