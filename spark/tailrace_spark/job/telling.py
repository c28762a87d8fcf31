"""What a stream tells the tools around it, where the settings ask for that: spans of its batches, and its lineage."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial

from pyspark.sql import SparkSession

from tailrace_common.closing import Closing
from tailrace_common.sections.sink import Dataset, SourceTable, first_server
from tailrace_common.settings import Settings
from tailrace_common.topics import SchemaReader
from tailrace_common.tracing import open_tracer
from tailrace_common.tracing.spans import Attributes
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.table import Table
from tailrace_spark.job.lineage import Events, Lineage, TableLineage
from tailrace_spark.job.progress import Progress
from tailrace_spark.shaping import Shape, newest_entries
from tailrace_spark.source.kafka import reads_topic

log = logging.getLogger("tailrace_spark")


class Telling(Closing):
    """Of one stream. `options` are those of Spark's Kafka source that it needs."""

    def __init__(self, settings: Settings, name: str, location: str) -> None:
        """`location` names the sink without secrets. Raises SettingsError where a package lacks."""
        self._settings = settings
        about = {"tailrace.stream": name, "tailrace.sink": location}
        self._tracer = open_tracer(settings.traces.endpoint, "tailrace-stream", about)
        self._lineage: Lineage | None = None
        # Where spans are sent, records are read with their headers.
        self.options = {} if self._tracer is None else {"includeHeaders": "true"}

    @contextmanager
    def running(
        self, schemas: SchemaReader, shape: Shape | None, spark: SparkSession, ending: Collection[str]
    ) -> Iterator[None]:
        """A run of the stream, with the lineage that the settings ask for, if any; `ending` is empty for one that runs
        on.

        Raises SettingsError where the package lacks.
        """
        settings, section = self._settings, self._settings.lineage
        if section.transport == "none":
            yield
            return
        tables = partial(_tables, settings, schemas, shape, reads_topic(spark, settings))
        events = _events(settings, spark.version, ends=bool(ending))
        self._lineage = Lineage(events, tables, time.monotonic, section.running_seconds)
        try:
            with self._lineage.running():
                yield
        finally:
            self._lineage = None

    def wrote(self, progress: Progress) -> None:
        """A batch is in the sink, just now."""
        if self._lineage is not None:
            self._lineage.wrote(progress)
        if self._tracer is None or not progress.traces:
            return
        began = time.time_ns() - round(progress.seconds * 1e9)
        about: Attributes = {
            "messaging.system": "kafka",
            "messaging.operation.type": "process",
            "messaging.batch.message_count": progress.records,
            "tailrace.batch": progress.batch,
            "tailrace.execution": progress.execution,
            "tailrace.tables": sorted(progress.tables),
            "tailrace.rows": progress.summary.rows,
            "tailrace.dead_letters": progress.summary.dead_letters,
            "tailrace.blocked_seconds": progress.blocked_seconds,
        }
        self._tracer.batch("tailrace.batch", sorted(progress.traces), began, about)

    def close(self) -> None:
        """Send the spans that wait, for a few seconds at most."""
        if self._tracer is not None:
            self._tracer.close()


def _events(settings: Settings, spark: str, *, ends: bool) -> Events:
    try:
        from tailrace_spark.job.lineage_events import LineageEvents
    except ImportError as cause:
        raise SettingsError(f"lineage.transport needs {cause.name}: pip install 'tailrace[openlineage]'") from None
    sink, _ = settings.stream_sink()
    return LineageEvents(settings.lineage, f"{settings.topics.prefix}.{sink}", spark, ends=ends)


def _tables(
    settings: Settings, schemas: SchemaReader, shape: Shape | None, reads: Callable[[str], bool]
) -> list[TableLineage]:
    """Those that are announced, by name."""
    try:
        schemas.refresh()
    except ServiceError as error:
        log.info("could not read the newest schemas; an event of [lineage] names the tables read before: %s", error)
    entries = newest_entries(entry for entry in schemas.values() if reads(entry.topic))
    return [
        _lineage(settings, shape, entry.topic, entry.table) for entry in sorted(entries, key=lambda new: str(new.table))
    ]


def _lineage(settings: Settings, shape: Shape | None, topic: str, table: Table) -> TableLineage:
    _, section = settings.stream_sink()
    kafka, cluster = first_server(settings.kafka.root.get("bootstrap.servers")), _cluster(settings)
    source = SourceTable(table.keyspace, table.name, settings.topics.prefix, kafka)
    return TableLineage(
        source=table,
        topic=Dataset(f"kafka://{kafka}", topic),
        cassandra=None if cluster is None else Dataset(f"cassandra://{cluster}", str(table)),
        target=section.dataset(source),
        shown=table if shape is None else shape.definition(table),
    )


def _cluster(settings: Settings) -> str | None:
    """HOST:PORT of the source's cluster, where the settings name it."""
    if settings.lineage.cassandra is not None:
        return settings.lineage.cassandra
    cluster = settings.cluster
    if "contact_points" not in cluster.model_fields_set:
        return None
    return f"{cluster.contact_points[0]}:{cluster.port}"
