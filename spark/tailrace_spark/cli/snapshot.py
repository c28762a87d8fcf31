"""`tailrace snapshot`: tables that exist already, read for those who follow them."""

from __future__ import annotations

import time
from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from tailrace_common.cli.console import print_rows, say
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_spark.cli.read_options import (
    ConcurrentRanges,
    Consistency,
    Datacenter,
    RequestsPerNode,
    RowsPerSecond,
    TableName,
    TokenRange,
    read_settings,
)
from tailrace_spark.snapshot.settings import SnapshotSettings

app = typer.Typer(
    no_args_is_help=True,
    help="Read tables that exist already, for those who follow them.\n\n"
    "Example: tailrace snapshot start shop.orders --to kafka",
)


class Target(StrEnum):
    """Where the rows of a snapshot go."""

    KAFKA = "kafka"


@app.command("start")
def start(
    table: TableName,
    to: Annotated[
        Target, typer.Option("--to", help="Where the rows go: kafka, the table's own topic, for all of its readers.")
    ],
    config: SettingsFile = None,
    token_range: TokenRange = None,
    rows_per_second: RowsPerSecond = None,
    concurrent_ranges: ConcurrentRanges = 4,
    requests_per_node: RequestsPerNode = 2,
    consistency: Consistency = "LOCAL_QUORUM",
    datacenter: Datacenter = None,
    new: Annotated[
        bool, typer.Option("--new", help="Begin a new one, and give up one of this table that has not ended.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Say how many ranges, rows and bytes it would be, and how long; read samples."),
    ] = False,
) -> None:
    """Publish the rows of a table as `read` changes, each once, into its topic, beside the changes of the log.

    Any reader of the topic can begin with it. The definition is announced before the first row. A command that was
    killed goes on where it stopped when it is run again. It reads [cluster], [kafka], [topics], [tables], [schemas],
    [avro] and [stream.spark]; no agent needs to run.

    Example: tailrace snapshot start shop.orders --to kafka --rows-per-second 5000
    """
    settings = settings_of(config)
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
    del to  # there is one
    if dry_run:
        _print_estimate(table, reading)
        return
    from tailrace_spark.cli.snapshot_progress import line_of, shown
    from tailrace_spark.job.plain_tasks import run_tasks
    from tailrace_spark.job.session import SparkOnce
    from tailrace_spark.snapshot.announcing import Announcer
    from tailrace_spark.snapshot.publication import Publication

    publication = Publication(Announcer(settings), reading)
    publication.begin(new=new)
    earlier, left = publication.totals()
    _say_begun(publication.record.id, publication.destination.topic, earlier.ranges, len(left), publication.resumed)
    began = time.monotonic()
    with SparkOnce(settings.stream.spark.reveal()) as spark:
        if left:
            session = spark()
            began = time.monotonic()
            with shown(publication, before=earlier):
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


def _say_begun(snapshot: str, topic: str, ranges: int, left: int, resumed: bool) -> None:
    if resumed:
        say(f"snapshot {snapshot} goes on: {left} of {ranges} ranges are left; it is published to {topic}")
    else:
        say(f"snapshot {snapshot}: {ranges} ranges are published to {topic}")
