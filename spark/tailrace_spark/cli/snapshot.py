"""`tailrace snapshot`: tables that exist already, read into a stream's sink, or for those who follow their topics."""

from __future__ import annotations

import time
from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from tailrace_common.cli.console import on_terminal, print_rows, say
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_common.settings import Settings
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.literal_keys import serialized_key
from tailrace_schemas.tokens import token
from tailrace_spark.cli.stream_snapshots import ask, definition_of, notes_of, rows_of, shown
from tailrace_spark.cli.support import (
    ConcurrentRanges,
    Consistency,
    Datacenter,
    RequestsPerNode,
    RowsPerSecond,
    TableName,
    TokenRange,
    read_settings,
)
from tailrace_spark.snapshot.ranges import WHOLE, parse_range, union
from tailrace_spark.snapshot.ranges import TokenRange as Tokens
from tailrace_spark.snapshot.settings import SnapshotSettings

app = typer.Typer(
    no_args_is_help=True,
    help="Read tables that exist already, for those who follow them.\n\n"
    "Example: tailrace snapshot start shop.orders --to kafka",
)


Sink = Annotated[str | None, typer.Option(metavar="NAME", help="The stream's [sink.NAME], instead of stream.sink.")]


class Destination(StrEnum):
    """Where the rows of a snapshot go."""

    SINK = "sink"
    KAFKA = "kafka"


@app.command("start")
def start(
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
    with notes_of(settings_of(config), sink) as stream:
        rows = [row for row in rows_of(stream) if table in (None, row["table"])]
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
    definition = definition_of(settings, table)
    within = WHOLE if token_range is None else union(parse_range(token_range))
    if partition is not None:
        key_token = token(serialized_key(partition, definition))
        within = (Tokens(key_token - 1, key_token),)
    ask(settings, sink, "start", table, within, where)


def _publish(settings: Settings, reading: SnapshotSettings, *, new: bool) -> None:
    from tailrace_spark.cli.snapshot_progress import line_of
    from tailrace_spark.cli.snapshot_progress import shown as progress_shown
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
