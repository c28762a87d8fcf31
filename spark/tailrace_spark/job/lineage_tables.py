"""The lineage of a stream, made from its settings: which tables it follows, and where its sink has them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from functools import partial

from pyspark.sql import SparkSession

from tailrace_common.sections.sink import Dataset, SourceTable, first_server
from tailrace_common.settings import Settings
from tailrace_common.topics import SchemaReader
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.table import Table
from tailrace_spark.job.lineage import Events, Lineage, TableLineage
from tailrace_spark.shaping import Shape, newest_entries
from tailrace_spark.source.kafka import reads_topic

log = logging.getLogger("tailrace_spark")


def lineage_of(
    settings: Settings, schemas: SchemaReader, shape: Shape | None, spark: SparkSession, ending: Collection[str]
) -> Lineage:
    """The lineage that the settings ask for, if any. `ending` is empty for a stream that runs on.

    Its run raises SettingsError where the package lacks.
    """
    section = settings.lineage
    if section.transport == "none":
        return Lineage(None, list, time.monotonic, section.running_seconds)
    opening = partial(_open, settings, spark.version, bool(ending))
    tables = partial(_tables, settings, schemas, shape, reads_topic(spark, settings))
    return Lineage(opening, tables, time.monotonic, section.running_seconds)


def _open(settings: Settings, spark: str, ends: bool) -> Events:
    try:
        from tailrace_spark.job.lineage_events import LineageEvents, StreamJob
    except ImportError as cause:
        raise SettingsError(f"lineage.transport needs {cause.name}: pip install 'tailrace[openlineage]'") from None
    sink, _ = settings.stream_sink()
    return LineageEvents(settings.lineage, StreamJob(f"{settings.topics.prefix}.{sink}", spark, ends))


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
