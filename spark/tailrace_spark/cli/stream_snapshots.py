"""What commands ask of a stream's snapshots, and what they show of them: by the notes beside its checkpoint."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import uuid4

from tailrace_common.cli.console import say
from tailrace_common.settings import Settings
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.table import Table
from tailrace_spark.cli.support import chosen_sink
from tailrace_spark.job.checkpoint_files import Folder, files_in, local_files
from tailrace_spark.job.session import SparkOnce
from tailrace_spark.job.snapshot_context import read_settings
from tailrace_spark.job.snapshot_notes import REQUESTS, SnapshotNotes
from tailrace_spark.snapshot.progress import Request, Snapshots, status_row
from tailrace_spark.snapshot.ranges import WHOLE, Intervals

_BAR: Final = 20


@dataclass(frozen=True, slots=True)
class StreamNotes:
    """A stream's notes, where they are, and its sink."""

    notes: SnapshotNotes
    checkpoint: str


def ask(
    settings: Settings, sink: str | None, action: str, table: str, within: Intervals = WHOLE, where: str | None = None
) -> None:
    with notes_of(settings, sink) as stream:
        if action != "start":
            _require_active(stream.notes.read(), stream.notes, table)
        now = time.time()
        request = Request(id=uuid4().hex[:12], action=action, table=table, asked=now, within=within, where=where)
        stream.notes.ask(request)
        say(f"{table}: {action} is asked of the stream with the checkpoint {stream.checkpoint} ({request.id})")


def _require_active(value: Snapshots, notes: SnapshotNotes, table: str) -> None:
    """Raise SettingsError where the table has no snapshot that a command could concern."""
    started = any(request.table == table and request.action == "start" for _, request in notes.requested())
    if not started and not any(snapshot.table == table and not snapshot.state.ended for snapshot in value.tables):
        raise SettingsError(f"{table} has no snapshot that is read or waits: `tailrace snapshot status` lists all")


def definition_of(settings: Settings, table: str) -> Table:
    """The table as it is now. Raises SettingsError for one that cannot be read as changes, ServiceError."""
    from tailrace_spark.snapshot.session import ClusterView

    reading = read_settings(settings, table=table)
    with closing(ClusterView(reading)) as view:
        definition = view.table()
        view.check(view.reading(reading, definition))
    if not definition.cdc:
        say(f"{table} has cdc = false: what is written to it later does not come")
    return definition


def rows_of(stream: StreamNotes) -> list[dict[str, object]]:
    """Those of the notes, and of requests that the stream has not taken."""
    value = stream.notes.read()
    for _, request in stream.notes.requested():
        value = value.take(request, request.asked)
    return [status_row(snapshot) for snapshot in value.tables]


def shown(row: dict[str, object]) -> dict[str, object]:
    """A row for people: a bar, and words for sizes and times."""
    percent, size, seconds_left = float(str(row["percent"])), float(str(row["bytes"])), row["seconds_left"]
    filled = int(_BAR * percent / 100)
    rate = row["rows_per_second"]
    return {
        "table": row["table"],
        "state": row["state"],
        "done": f"{'█' * filled}{'░' * (_BAR - filled)} {percent:.0f} %",
        "ranges": row["ranges"],
        "rows": row["rows"],
        "size": f"{size / 2**20:.1f} MiB",
        "rows/s": None if rate is None else f"{float(str(rate)):.0f}",
        "left": None if seconds_left is None else _duration(int(str(seconds_left))),
        "reason": row["reason"],
    }


def _duration(seconds: int) -> str:
    hours, rest = divmod(seconds, 3600)
    minutes, last = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{last:02}"


@contextmanager
def notes_of(settings: Settings, sink: str | None) -> Iterator[StreamNotes]:
    """The notes of the sink's stream; Spark is started where its checkpoint is on another file system."""
    chosen, _ = chosen_sink(settings, sink)
    with SparkOnce(settings.stream.spark.reveal()) as spark:
        open_local = partial(local_files, spark=settings.stream.spark.reveal(), environ=os.environ)

        def opened(folder: str) -> Folder:
            local = open_local(folder)
            return files_in(spark(), folder) if local is None else local

        checkpoint = settings.stream.checkpoint_of(chosen).rstrip("/")
        folder = f"{checkpoint}/tailrace"
        yield StreamNotes(SnapshotNotes(opened(folder), opened(f"{folder}/{REQUESTS}"), checkpoint), checkpoint)
