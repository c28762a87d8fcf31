"""`tailrace compare`: tables of the source against what a sink has of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace_common.backoff import Timing
from tailrace_common.cli.console import print_rows, say
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_common.settings import Settings
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.table import Table
from tailrace_spark.cli.support import (
    ConcurrentRanges,
    Consistency,
    Datacenter,
    RequestsPerNode,
    RowsPerSecond,
    TokenRange,
    chosen_sink,
    read_settings,
)

if TYPE_CHECKING:
    from tailrace_spark.comparison.rows import Difference
    from tailrace_spark.comparison.run import Comparison
    from tailrace_spark.merge.stored_row import RowKey
    from tailrace_spark.sinks.protocol import ComparableSink, ReachableSink
    from tailrace_spark.snapshot.settings import SnapshotSettings

_DIFFERS = 4
"""The exit code for data loss: the copy is not what the source has."""


def compare(
    tables: Annotated[
        list[str], typer.Argument(metavar="KEYSPACE.TABLE...", help="Tables, as Cassandra stores the names.")
    ],
    config: SettingsFile = None,
    sink: Annotated[
        str | None, typer.Option(metavar="NAME", help="The [sink.NAME] to look at, instead of stream.sink.")
    ] = None,
    token_range: TokenRange = None,
    grace_seconds: Annotated[
        float,
        typer.Option("--grace", metavar="SECONDS", min=0, help="How long a change may be on its way to the sink."),
    ] = 30.0,
    repair: Annotated[
        bool, typer.Option("--repair", help="Read rows that differ again, through the sink's own merge.")
    ] = False,
    remove_extra: Annotated[
        bool,
        typer.Option(
            "--remove-extra",
            help="With --repair: remove rows and values that only the sink has. The source does not say that they were "
            "deleted: it lacks them.",
        ),
    ] = False,
    rows_per_second: RowsPerSecond = None,
    concurrent_ranges: ConcurrentRanges = 4,
    requests_per_node: RequestsPerNode = 2,
    consistency: Consistency = "LOCAL_QUORUM",
    datacenter: Datacenter = None,
) -> None:
    """Compare tables of Cassandra with what a sink has of them, and list the rows that differ; values are not shown.

    Rows that differ are looked at again after the grace. Those written within it are in flight, and do not count. Exit
    code 4 where rows differ, or differ still after --repair. A stream may run meanwhile.

    Example: tailrace compare shop.orders --sink local --repair
    """
    settings = settings_of(config)
    chosen, _ = chosen_sink(settings, sink)
    if remove_extra and not repair:
        raise SettingsError("--remove-extra needs --repair")
    if settings.stream.where or settings.stream.columns:
        raise SettingsError("stream.where and stream.columns change what the sink has: nothing can be compared with it")
    readings = [
        read_settings(
            settings,
            table=table,
            rows="changes",
            token_range=token_range,
            rows_per_second=rows_per_second,
            concurrent_ranges=concurrent_ranges,
            requests_per_node=requests_per_node,
            consistency=consistency.upper(),
            datacenter=datacenter,
        )
        for table in tables
    ]
    from tailrace_spark.cli.support import run_tasks
    from tailrace_spark.comparison.run import Comparison
    from tailrace_spark.job.session import SparkOnce

    store, comparable = comparable_sink(settings, chosen, readings[0])
    timing = Timing(clock=time.time)
    equal = True
    try:
        with SparkOnce(settings.stream.spark.reveal()) as spark:
            for reading in readings:
                comparison = Comparison(reading, comparable, partial(run_tasks, spark()), timing, grace_seconds)
                equal &= _tell(comparison, repaired=repair, remove=remove_extra)
    finally:
        store.close()
    if not equal:
        raise typer.Exit(_DIFFERS)


def _tell(comparison: Comparison, *, repaired: bool, remove: bool) -> bool:
    """Compare a table, print how it differs, and repair it where that is asked for; whether nothing differs then."""
    from tailrace_spark.comparison.run import repair

    compared = comparison.compare()
    remaining = dict(compared.differences)
    if repaired and remaining:
        remaining = repair(comparison, compared, remove=remove, now=int(time.time()))
    print_rows(_lines(compared.table, compared.differences.values(), remaining, repaired=repaired))
    flying = f", {compared.in_flight} in flight" if compared.in_flight else ""
    differing = len(compared.differences)
    say(f"{compared.table}: {compared.rows} rows and static rows read, {differing} differ{flying}")
    if repaired and differing:
        say(f"{differing - len(remaining)} repaired, {len(remaining)} differ still")
    return not remaining


def comparable_sink(settings: Settings, chosen: str, reading: SnapshotSettings) -> tuple[ReachableSink, ComparableSink]:
    """The sink of a name, reached, and as one whose rows can be compared. Raises SettingsError and ServiceError."""
    from tailrace_spark.comparison.source import CopiedTables
    from tailrace_spark.sinks.cassandra.settings import CassandraSinkSettings
    from tailrace_spark.sinks.protocol import follow, follows_none
    from tailrace_spark.sinks.registry import setting_of, sink_of

    store, section = sink_of(settings, chosen), settings.sink[chosen]
    comparable = store.capabilities.comparable
    if isinstance(section, CassandraSinkSettings):
        comparable = CopiedTables(store, section, reading)
    try:
        if comparable is None:
            raise SettingsError(
                f"sink.{chosen}: rows of a sink of type {section.type} cannot be compared yet; those of cassandra and "
                "sql can"
            )
        store.reach()
        follow(store, follows_none)  # what waits is its stream's to write, by its filters
    except ServiceError as error:
        store.close()
        raise ServiceError(f"{setting_of(chosen, settings.sink[chosen])} cannot be opened: {error}") from error
    except SettingsError:
        store.close()
        raise
    return store, comparable


def _lines(
    table: Table, differences: Iterable[Difference], remaining: Mapping[RowKey, Difference], *, repaired: bool
) -> Iterator[dict[str, object]]:
    names = [column.name for column in table.key]
    for difference in sorted(differences, key=lambda item: item.row_key):
        line: dict[str, object] = {
            "table": str(table),
            "key": dict(zip(names, difference.shown, strict=False)),
            "static": difference.static,
            "difference": difference.kind.value,
            "columns": list(difference.columns),
        }
        yield {**line, "repaired": difference.row_key not in remaining} if repaired else line
