"""The demo for a terminal: the flow with its numbers, the services, the latest changes and their rows."""

from __future__ import annotations

import errno
import json
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from rich.box import ROUNDED, SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tailrace.demo.display import Counts, Landed, Outcome
from tailrace.demo.lines import verdict

_REFRESH_SECONDS: Final = 0.125
_FRAME_LINES: Final = 21
_FEWEST_CHANGES: Final = 5
# From so many characters on there are the places of changes, their stream ids, and both with more of them.
_SHORT_PLACES: Final = 70
_STREAM_IDS: Final = 100
_WHOLE_PLACES: Final = 130
_STYLES: Final = {
    "insert": "green",
    "update": "cyan",
    "delete": "red",
    "delete_partition": "bold red",
    "delete_range": "magenta",
}
_STATES: Final = {"running": "green", "stopped": "dim", "starting": "yellow"}


class Screen:
    """A Display on `console`, redrawn a few times a second while the demo runs."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._began = clock()
        self._drawn = 0.0
        self._bytes: tuple[int, int] | None = None
        self._parts: dict[str, tuple[str, str]] = {}
        self._changes: deque[Landed] = deque(maxlen=200)
        self._counts = Counts()
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")
        self._live.start()

    def fetched(self, done: int, total: int) -> None:
        self._bytes = (done, total)

    def part(self, name: str, state: str, where: str = "") -> None:
        self._parts = {**self._parts, name: (state, where)}

    def landed(self, landed: Landed) -> None:
        self._changes.append(landed)

    def counts(self, counts: Counts) -> None:
        self._counts = counts

    def refresh(self) -> None:
        if self._clock() - self._drawn >= _REFRESH_SECONDS:
            self._draw()

    def finished(self, outcome: Outcome) -> None:
        self._draw()
        self._live.stop()
        words = verdict(outcome.comparison)
        style = "bold green" if outcome.comparison.identical else "bold red"
        summary = (
            f"{outcome.counts.written} statements, {outcome.counts.landed} changes, {outcome.seconds:.0f} s in all"
        )
        self._console.print(Text(words, style), Text(f"({summary})", "dim"))

    def addresses(self, lines: Mapping[str, str]) -> None:
        self._live.stop()
        self._console.print(Text("everything keeps running until Ctrl-C", "bold"))
        for name, address in lines.items():
            self._console.print(Text(name, "bold"))
            # To be copied: in one piece, whatever the width, with nothing beside it.
            self._console.print(Text(address), soft_wrap=True)

    def close(self) -> None:
        self._live.stop()

    def _draw(self) -> None:
        self._drawn = self._clock()
        try:
            self._live.update(self.frame(), refresh=True)
        except OSError as error:
            if error.errno == errno.EIO:  # the terminal is closed: the shell's SIGHUP is on its way, or already here
                signal.raise_signal(signal.SIGHUP)
            raise

    def frame(self) -> RenderableType:
        """The whole screen."""
        parts: list[RenderableType] = [self._flow(), self._services()]
        if self._bytes is not None and self._bytes[0] < self._bytes[1]:
            parts.append(self._downloads(*self._bytes))
        if self._changes:
            parts.append(self._latest())
        return Group(*parts)

    def _flow(self) -> RenderableType:
        counts, median = self._counts, self._counts.median_seconds
        grid = Table.grid(expand=True)
        steps = (
            ("Cassandra", "commit log", f"{counts.written} statements"),
            ("Kafka", "Avro, exactly once", f"{counts.published} changes"),
            ("Spark", "row state", f"{counts.landed} merged"),
            ("SQLite", "the same rows", f"{counts.rows} rows"),
        )
        for index, _ in enumerate(steps):
            grid.add_column(justify="center", ratio=4)
            if index < len(steps) - 1:
                grid.add_column(justify="center", ratio=1)
        for row, style in ((0, "bold"), (1, "dim"), (2, "bold cyan")):
            cells: list[Text] = []
            for index, step in enumerate(steps):
                cells.append(Text(step[row], style))
                if index < len(steps) - 1:
                    cells.append(Text("──▶" if row == 0 else "", "dim"))
            grid.add_row(*cells)
        latency = "" if median is None else f", a change takes {median:.1f} s (median)"
        title = f"tailrace demo, {self._clock() - self._began:.0f} s{latency}"
        return Panel(grid, title=Text(title), title_align="left", box=ROUNDED)

    def _services(self) -> RenderableType:
        table = Table(box=SIMPLE_HEAD, show_header=False, pad_edge=False)
        for name, (state, address) in self._parts.items():
            mark = Text("● ", _STATES.get(state, "yellow"))
            table.add_row(
                mark + Text(name, "bold"), Text(state), Text(address, "dim", overflow="ellipsis", no_wrap=True)
            )
        return table

    def _downloads(self, done: int, total: int) -> RenderableType:
        grid = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=total, completed=done, width=40)
        grid.add_row(Text("jars, once per user"), bar, Text(f"{done >> 20} of {total >> 20} MiB"))
        return grid

    def _latest(self) -> RenderableType:
        """The changes that there is room for; in a narrow terminal the places give way, so that the rows are seen."""
        room = max(_FEWEST_CHANGES, self._console.height - _FRAME_LINES)
        width = self._console.width
        columns = _places(width)
        table = Table(box=SIMPLE_HEAD, expand=True, pad_edge=False)
        table.add_column("change", no_wrap=True)
        table.add_column("key", no_wrap=True, overflow="ellipsis", max_width=width // 5)
        for head, _ in columns:
            table.add_column(head, no_wrap=True, style="dim")
        table.add_column("in SQLite now", no_wrap=True, overflow="ellipsis", ratio=1)
        for landed in list(self._changes)[-room:]:
            cells = (Text(cell(landed)) for _, cell in columns)
            table.add_row(_change(landed), Text(_key(landed)), *cells, Text(_row(landed)))
        return table


def _change(landed: Landed) -> Text:
    change, op = landed.seen.change, landed.seen.change.op.value
    static = " static" if change.static else ""
    return Text(f"{op.replace('_', ' ')}{static} {change.table.name}", _STYLES.get(op, ""))


def _key(landed: Landed) -> str:
    return ", ".join("…" if value is None else str(value) for value in landed.seen.key.values())


def _places(width: int) -> list[tuple[str, Callable[[Landed], str]]]:
    """Head and text of the columns between key and row: as much as leaves the row some 20 characters at least."""
    if width < _SHORT_PLACES:
        return []
    if width < _STREAM_IDS:
        return [("Kafka", _in_topic)]
    if width < _WHOLE_PLACES:
        return [("Kafka", _in_topic), ("stream id", lambda landed: _stream_id(landed, 6, 4))]
    return [
        ("Kafka", lambda landed: f"{landed.seen.topic} {_in_topic(landed)}"),
        ("stream id", lambda landed: _stream_id(landed, 10, 6)),
    ]


def _in_topic(landed: Landed) -> str:
    return f"[{landed.seen.partition}] @ {landed.seen.offset}"


def _stream_id(landed: Landed, first: int, last: int) -> str:
    stream_id = landed.stream_id
    return "" if stream_id is None else f"{stream_id[:first]}…{stream_id[-last:]}"


def _row(landed: Landed) -> str:
    if landed.rows is not None:
        return f"{landed.rows} rows in the partition"
    if landed.row is None:
        return "no such row"
    values = {name: value for name, value in landed.row.items() if value is not None and name not in landed.seen.key}
    change = landed.seen.change
    touched = {cell.column.name for cell in change.cells} | {
        deletion.column.name for deletion in change.column_deletions
    }
    names = sorted(values, key=lambda name: (name not in touched, name))  # what the change wrote comes first
    return ", ".join(f"{name}={_short(values[name])}" for name in names) or "the key alone"


def _short(value: object) -> str:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return value if isinstance(value, str) else json.dumps(value)
