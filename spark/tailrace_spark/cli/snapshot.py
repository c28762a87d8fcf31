"""`tailrace snapshot`: tables that exist already, read into a stream's sink, or for those who follow their topics."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from enum import StrEnum
from functools import partial
from typing import Annotated, Final
from uuid import uuid4

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tailrace_common.cli.console import on_terminal, print_json, print_rows, say
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_common.closing import beside
from tailrace_common.settings import Settings
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.literal_keys import serialized_key
from tailrace_schemas.table import Table
from tailrace_schemas.tokens import token
from tailrace_spark.cli.support import (
    ConcurrentRanges,
    Consistency,
    Datacenter,
    RequestsPerNode,
    RowsPerSecond,
    TableName,
    TokenRange,
    chosen_sink,
    read_settings,
)
from tailrace_spark.job.checkpoint_files import Folder, files_in, local_files
from tailrace_spark.job.session import SparkOnce
from tailrace_spark.job.snapshot_context import settings_for, stream_settings
from tailrace_spark.job.snapshot_notes import REQUESTS, SnapshotNotes
from tailrace_spark.snapshot.progress import Request, Snapshots, status_row
from tailrace_spark.snapshot.publication import Publication, Totals, totals_of
from tailrace_spark.snapshot.ranges import WHOLE, Intervals, parse_range, union
from tailrace_spark.snapshot.ranges import TokenRange as Tokens
from tailrace_spark.snapshot.settings import SnapshotSettings

app = typer.Typer(
    no_args_is_help=True,
    help="Read tables that exist already, for those who follow them.\n\n"
    "Example: tailrace snapshot start shop.orders --to kafka",
)


Sink = Annotated[str | None, typer.Option(metavar="NAME", help="The stream's [sink.NAME], instead of stream.sink.")]
log = logging.getLogger("tailrace_spark")
_LOOK_SECONDS: Final = 1.0
_LINE_SECONDS: Final = 10.0

Show = Callable[[Totals, float], None]
"""Shows how far it is, so many seconds after the command began."""
_BAR: Final = 20
_OF_THIS_COMMAND: Final = (
    "rows_per_second",
    "concurrent_ranges",
    "requests_per_node",
    "consistency",
    "datacenter",
    "new",
)
"""Options of a command that reads by itself."""


class Destination(StrEnum):
    """Where the rows of a snapshot go."""

    SINK = "sink"
    KAFKA = "kafka"


@app.command("start")
def start(
    context: typer.Context,
    table: TableName,
    to: Annotated[
        Destination,
        typer.Option(
            "--to", help="Where the rows go: sink, the stream's; kafka, the table's own topic, for all of its readers."
        ),
    ] = Destination.SINK,
    config: SettingsFile = None,
    token_range: TokenRange = None,
    partition: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Into a sink: one partition, its key in CQL, or as 0x and its bytes."),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(metavar="CONDITION", help="Into a sink: the rows that meet a condition on the key, in CQL."),
    ] = None,
    sink: Sink = None,
    rows_per_second: RowsPerSecond = None,
    concurrent_ranges: ConcurrentRanges = 4,
    requests_per_node: RequestsPerNode = 2,
    consistency: Consistency = "LOCAL_QUORUM",
    datacenter: Datacenter = None,
    new: Annotated[
        bool,
        typer.Option("--new", help="Into kafka: begin a new one, and give up one of this table that has not ended."),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Say how many ranges, rows and bytes it would be, and how long; read samples."),
    ] = False,
) -> None:
    """Read the rows of a table as `read` changes, beside the changes of the log.

    Into a sink: its stream takes them up between two batches, or when it is started, by the limits of [snapshot]. Into
    kafka: each row is published once; any reader of the topic can begin with it. The definition is announced before the
    first row, and no agent needs to run. A command that was killed goes on when it is run again. It reads by the limits
    given here, and by [cluster], [kafka], [topics], [tables], [schemas], [avro] and [stream.spark].

    Example: tailrace snapshot start shop.orders --to kafka --rows-per-second 5000
    """
    settings = settings_of(config)
    if to is Destination.SINK and not dry_run:
        if ignored := [name for name in _OF_THIS_COMMAND if _is_given(context, name)]:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in ignored)
            raise SettingsError(f"{options}: for --to kafka. Into a sink its stream reads, by the limits of [snapshot]")
        _ask_stream(settings, sink, table, token_range, partition, where)
        return
    if partition is not None or where is not None or sink is not None:
        raise SettingsError("--partition, --where and --sink are for --to sink, without --dry-run")
    reading = read_settings(
        settings,
        table=table,
        rows="changes",
        prefix=settings.topics.prefix,
        token_range=token_range,
        rows_per_second=rows_per_second,
        concurrent_ranges=concurrent_ranges,
        requests_per_node=requests_per_node,
        consistency=consistency.upper(),
        datacenter=datacenter,
    )
    if dry_run:
        _print_estimate(table, reading)
    else:
        _publish(settings, reading, new=new)


@app.command("status")
def status(
    table: Annotated[
        str | None, typer.Argument(metavar="KEYSPACE.TABLE", help="Only this table's.", show_default=False)
    ] = None,
    config: SettingsFile = None,
    sink: Sink = None,
    always_json: Annotated[bool, typer.Option("--json", help="JSON lines, on a terminal too.")] = False,
) -> None:
    """Show how far the snapshots of a stream are: ranges, rows, bytes, rate and time left.

    A table on a terminal, JSON lines when piped. It reads what the stream keeps beside its checkpoint.

    Example: tailrace snapshot status -c tailrace.toml
    """
    with notes_of(settings_of(config), sink) as notes:
        rows = [row for row in rows_of(notes) if table in (None, row["table"])]
        if on_terminal() and not always_json:
            rows = [shown(row) for row in rows]
        print_rows(rows, always_json=always_json, empty="this stream has no snapshots")


@app.command("pause")
def pause(table: TableName, config: SettingsFile = None, sink: Sink = None) -> None:
    """Let a table's snapshot wait, from the end of the range on that is being read.

    Example: tailrace snapshot pause shop.orders -c tailrace.toml
    """
    ask(settings_of(config), sink, "pause", table)


@app.command("resume")
def resume(table: TableName, config: SettingsFile = None, sink: Sink = None) -> None:
    """Let a snapshot that was paused go on.

    Example: tailrace snapshot resume shop.orders -c tailrace.toml
    """
    ask(settings_of(config), sink, "resume", table)


@app.command("cancel")
def cancel(table: TableName, config: SettingsFile = None, sink: Sink = None) -> None:
    """End a table's snapshot. Rows that it has written stay.

    Example: tailrace snapshot cancel shop.orders -c tailrace.toml
    """
    ask(settings_of(config), sink, "cancel", table)


def _is_given(context: typer.Context, name: str) -> bool:
    """Whether the command line has this option."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _ask_stream(
    settings: Settings,
    sink: str | None,
    table: str,
    token_range: str | None,
    partition: str | None,
    where: str | None,
) -> None:
    if token_range is not None and partition is not None:
        raise SettingsError("--range and --partition exclude each other")
    definition = definition_of(settings, table, where)
    within = WHOLE if token_range is None else union(parse_range(token_range))
    if partition is not None:
        key_token = token(serialized_key(partition, definition))
        within = (Tokens(key_token - 1, key_token),)
    ask(settings, sink, "start", table, within, where)


def _publish(settings: Settings, reading: SnapshotSettings, *, new: bool) -> None:
    from tailrace_spark.cli.support import run_tasks
    from tailrace_spark.job.session import SparkOnce
    from tailrace_spark.snapshot.publication import Publication

    publication = Publication(settings, reading, new=new)
    earlier, unpublished = publication.totals()
    _say_begun(
        publication.record.id, publication.destination.topic, earlier.ranges, len(unpublished), publication.resumed
    )
    began = time.monotonic()
    with SparkOnce(settings.stream.spark.reveal()) as spark:
        if unpublished:
            session = spark()
            began = time.monotonic()
            with progress_shown(publication, before=earlier):
                totals = publication.publish(partial(run_tasks, session))
        else:
            totals = publication.publish(lambda _work, _task: ())
    print_rows([line_of(publication.record.id, totals, earlier, time.monotonic() - began)])


def _print_estimate(table: str, reading: SnapshotSettings) -> None:
    from tailrace_spark.snapshot.publication import estimated

    plan = estimated(reading)
    headings = {"tasks": "read at once", "bytes": "bytes on disk"}
    row = {
        "table": table,
        "ranges": plan.ranges,
        "tasks": plan.tasks,
        "rows": plan.rows,
        "bytes": plan.octets,
        "rows_per_second": reading.rows_per_second,
        "seconds": plan.seconds,
    }
    print_rows([row], headings=headings)


def _say_begun(snapshot: str, topic: str, ranges: int, unpublished: int, resumed: bool) -> None:
    if resumed:
        say(f"snapshot {snapshot} goes on: {unpublished} of {ranges} ranges are left; it is published to {topic}")
    else:
        say(f"snapshot {snapshot}: {ranges} ranges are published to {topic}")


@contextmanager
def progress_shown(publication: Publication, *, before: Totals) -> Iterator[None]:
    """While inside, how far the snapshot is is shown; `before` is what was out when the command began."""
    with (
        _bar() if sys.stderr.isatty() else _lines(publication.record.id, before) as show,
        beside(partial(_watch, publication, show), "snapshot progress"),
    ):
        yield


def line_of(snapshot: str, totals: Totals, before: Totals, seconds: float) -> dict[str, object]:
    """How far it is as a JSON line has it; what was out `before` does not count for the rate."""
    rate = (totals.changes - before.changes) / seconds if seconds > 0 else 0.0
    finished = totals.done - before.done
    return {
        "snapshot": snapshot,
        "ranges": totals.ranges,
        "done": totals.done,
        "changes": totals.changes,
        "bytes": totals.octets,
        "changes_per_second": round(rate, 1),
        "seconds_left": round((totals.ranges - totals.done) * seconds / finished) if finished else None,
    }


def _watch(publication: Publication, show: Show, stop: threading.Event) -> None:
    began = time.monotonic()
    with closing(publication.records(publication.record.id)) as records:
        while not stop.wait(_LOOK_SECONDS):
            try:
                records.read()
            except ServiceError as error:
                log.debug("how far the snapshot is cannot be read: %s", error)
                continue
            show(totals_of(publication.record, records), time.monotonic() - began)


@contextmanager
def _lines(snapshot: str, before: Totals) -> Iterator[Show]:
    last = -_LINE_SECONDS

    def show(totals: Totals, seconds: float) -> None:
        nonlocal last
        if seconds - last >= _LINE_SECONDS:
            last = seconds
            print_json(line_of(snapshot, totals, before, seconds))

    yield show


@contextmanager
def _bar() -> Iterator[Show]:
    columns = (
        TextColumn("ranges"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=None)

        def show(totals: Totals, seconds: float) -> None:
            del seconds
            words = f"{totals.changes} changes, {totals.octets / 1e6:.1f} MB"
            progress.update(bar, total=totals.ranges, completed=totals.done, description=words)

        yield show


def ask(
    settings: Settings, sink: str | None, action: str, table: str, within: Intervals = WHOLE, where: str | None = None
) -> None:
    with notes_of(settings, sink) as notes:
        if action != "start":
            _require_active(notes.read(), notes, table)
        now = time.time()
        request = Request(id=uuid4().hex[:12], action=action, table=table, asked=now, within=within, where=where)
        notes.ask(request)
        say(f"{table}: {action} is asked of the stream with the checkpoint {notes.checkpoint} ({request.id})")


def _require_active(value: Snapshots, notes: SnapshotNotes, table: str) -> None:
    """Raise SettingsError where the table has no snapshot that a command could concern."""
    started = any(request.table == table and request.action == "start" for _, request in notes.requested())
    if not started and not any(snapshot.table == table and not snapshot.state.ended for snapshot in value.tables):
        raise SettingsError(f"{table} has no snapshot that is read or waits: `tailrace snapshot status` lists all")


def definition_of(settings: Settings, table: str, where: str | None = None) -> Table:
    """The table as it is now. Raises SettingsError and ServiceError where it, or the condition, cannot be read by."""
    from tailrace_spark.snapshot.session import ClusterView

    reading = settings_for(stream_settings(settings), table, where)
    with closing(ClusterView(reading)) as view:
        definition = view.table()
        view.check(view.reading(reading, definition))
    if not definition.cdc:
        say(f"{table} has cdc = false: what is written to it later does not come")
    return definition


def rows_of(notes: SnapshotNotes) -> list[dict[str, object]]:
    """Those of the notes, and of requests that the stream has not taken."""
    value = notes.read()
    for _, request in notes.requested():
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
def notes_of(settings: Settings, sink: str | None) -> Iterator[SnapshotNotes]:
    """The notes of the sink's stream; Spark is started where its checkpoint is on another file system."""
    chosen, _ = chosen_sink(settings, sink)
    with SparkOnce(settings.stream.spark.reveal()) as spark:
        open_local = partial(local_files, spark=settings.stream.spark.reveal(), environ=os.environ)

        def opened(folder: str) -> Folder:
            local = open_local(folder)
            return files_in(spark(), folder) if local is None else local

        checkpoint = settings.stream.checkpoint_of(chosen).rstrip("/")
        folder = f"{checkpoint}/tailrace"
        yield SnapshotNotes(opened(folder), opened(f"{folder}/{REQUESTS}"), checkpoint)
