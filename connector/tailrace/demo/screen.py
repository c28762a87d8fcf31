"""The demo as it is shown: on a terminal lines above two bars, in a pipe JSON lines."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from tailrace.demo.flow import Landed
from tailrace_common.cli.console import print_json
from tailrace_schemas.change_json import key_words, plain

_STYLES: Final = {"insert": "green", "update": "cyan"}


class Screen:
    """Shows changes as they arrive; on a console also how far all is, of `total` statements (None: not known)."""

    def __init__(self, console: Console | None, total: int | None) -> None:
        self._console = console
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[words]}"),
            TimeElapsedColumn(),
        )
        self._bars = Progress(*columns, console=console, disable=console is None)
        self._written = self._bars.add_task("Cassandra", total=total, words="starting")
        self._landed = self._bars.add_task("SQLite", total=None, words="")
        self._bars.start()

    def landed(self, landed: Landed) -> None:
        """A change has arrived in the SQLite file."""
        if self._console is None:
            print_json(line(landed))
        else:
            self._console.print(words(landed), no_wrap=True, overflow="ellipsis", crop=True)

    def refresh(self, written: int, published: int, landed: int, median_seconds: float | None) -> None:
        """How far it is now: statements, changes in Kafka and in the SQLite file, from write to file."""
        latency = "" if median_seconds is None else f", {median_seconds:.1f} s after the write (median)"
        arrived = f"{landed} of {published} changes in Kafka{latency}"
        self._bars.update(self._written, completed=written, words=f"{written} statements")
        self._bars.update(self._landed, completed=landed, total=published or None, words=arrived)

    def close(self) -> None:
        """Leave the terminal as it was, with the last bars."""
        with suppress(OSError):  # the terminal is gone
            self._bars.stop()


def line(landed: Landed) -> dict[str, object]:
    """The JSON of a change: as `tailrace tail` has it, its topic, and the row in the file, or how many there are."""
    change = landed.change
    record: Any = plain(dict(change.record))
    location = {"topic": change.partition[0], "partition": change.partition[1], "offset": change.offset}
    line = {"table": str(change.table), **location, **record, "stream_id": landed.stream_id}
    if len(change.row_key) < len(change.table.key):
        return {**line, "rows": len(landed.rows)}
    return {**line, "row": plain(dict(landed.rows[0])) if landed.rows else None}


def words(landed: Landed) -> Text:
    """A change for people, and what the file has now; the columns that the change wrote in front."""
    change, op = landed.change, landed.change.record["op"]
    head = f"{op.replace('_', ' ')} {change.table.name}"
    location = f"[{change.partition[1]}] @ {change.offset}"
    key = key_words(change.table, change.record)
    return Text.assemble((f"{head:<25}", _STYLES.get(op, "red")), f" {key}  ", (f"{location}  ", "dim"), _row(landed))


def _row(landed: Landed) -> str:
    change = landed.change
    if len(change.row_key) < len(change.table.key):
        return f"{len(landed.rows)} rows in the partition"
    if not landed.rows:
        return "no such row"
    row, touched = landed.rows[0], change.record["columns"]
    names = [name for name in row if row[name] is not None and name not in change.row_key]
    names.sort(key=lambda name: (touched.get(name) is None, name))
    return ", ".join(f"{name}={_short(row[name])}" for name in names) or "the key alone"


def _short(value: object) -> str:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return value if isinstance(value, str) else json.dumps(value)
