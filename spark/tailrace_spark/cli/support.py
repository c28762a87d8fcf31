"""What commands have in common: options of reading, jobs of tasks, which sink, which of its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Final, TypeVar

import typer
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tailrace_common.settings import Settings, SinkSettings
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.job.endings import reason
from tailrace_spark.sinks.lake.store import LakeStore
from tailrace_spark.sinks.registry import SINKS
from tailrace_spark.snapshot.settings import SnapshotSettings, settings_at

NO_TABLES: Final = "the sink has no tables yet"
TableNames = Annotated[
    list[str] | None,
    typer.Option("--table", metavar="NAME", help="Only the table of this name, as `tables` prints it; repeatable."),
]
TableName = Annotated[str, typer.Argument(metavar="KEYSPACE.TABLE", help="The table, as Cassandra stores the names.")]
TokenRange = Annotated[
    str | None,
    typer.Option("--range", metavar="START,END", help="Only these tokens: after START, up to END; it may wrap."),
]
RowsPerSecond = Annotated[
    float | None,
    typer.Option(metavar="N", min=0.001, help="Most rows a second, of all tasks together. Without it: no limit."),
]
ConcurrentRanges = Annotated[int, typer.Option(metavar="N", min=1, help="Most ranges that are read at once.")]
RequestsPerNode = Annotated[
    int, typer.Option(metavar="N", min=1, help="Most requests that are under way at a node at once.")
]
Consistency = Annotated[str, typer.Option(metavar="LEVEL", help="Consistency level of the reads.")]
Datacenter = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Datacenter to read in. Without it, that of the first contact point."),
]
Work = TypeVar("Work")
Result = TypeVar("Result")
_SPECULATION: Final = "spark.speculation"


def chosen_sink(settings: Settings, name: str | None) -> tuple[str, SinkSettings]:
    """The name and the section of a sink: the one that is named, else the stream's. Raises SettingsError."""
    try:
        return (name, settings.sink[name]) if name is not None else settings.stream_sink()
    except KeyError:
        raise SettingsError(f"--sink {name}: there is no [sink.{name}]; set: {', '.join(settings.sink)}") from None
    except ValueError as error:
        raise SettingsError(str(error)) from None


def require_installed(chosen: str, section: SinkSettings) -> None:
    """Raises SettingsError where a package that a sink needs is not installed."""
    kind = SINKS[section.type]
    if missing := kind.missing():
        raise SettingsError(f"sink.{chosen}: needs {', '.join(missing)}, not installed: {kind.install}")


def chosen_tables(store: LakeStore, requested: Iterable[str] | None) -> list[str]:
    """The names of a store's tables, or those of them that are wanted. Raises SettingsError, ServiceError."""
    existing = [name for name in store.names() if store.open(name) is not None]
    names = existing if requested is None else list(requested)
    for name in names:
        if name not in existing:
            raise SettingsError(f"--table {name}: there is no such table; there: {', '.join(existing) or 'none'}")
    return names


def read_settings(settings: Settings, **options: object) -> SnapshotSettings:
    """How [cluster] and a command's options read a table, masks as [snapshot] says. Raises SettingsError."""
    return settings_at(settings.cluster, allow_masked_values=settings.snapshot.allow_masked_values, **options)


def run_tasks(
    spark: SparkSession, work: Sequence[Work], task: Callable[[Iterator[Work]], Iterator[Result]]
) -> list[Result]:
    """What `task` gives for each piece of work, a task of Spark's each. Raises ServiceError where the job fails.

    `task` is pickled, with the settings in it; nothing of it is shown. Raises SettingsError where Spark
    speculates: it would read twice, beyond the limits.
    """
    if not work:
        return []
    if spark.sparkContext.getConf().get(_SPECULATION, "false") == "true":
        raise SettingsError(f"{_SPECULATION} is true: Spark would read ranges twice at once. Set it to false")
    try:
        # PySpark calls iterators Iterable.
        results = spark.sparkContext.parallelize(work, len(work)).mapPartitions(lambda items: task(iter(items)))
        return list(results.collect())
    except (Py4JError, PySparkException) as error:
        raise ServiceError(f"Spark's job failed: {reason(error)}; run the same command again") from error
