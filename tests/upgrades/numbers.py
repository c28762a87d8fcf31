"""The numbers of what is kept, by the rows of docs/howto/upgrade.md: where the code has each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

Constant = tuple[str, str]
"""A module, and its constant."""

KEPT: Final[Mapping[str, tuple[Constant, ...]]] = {
    "`.offsets`": (("tailrace.publish.offsets", "VERSION"),),
    "`.progress`": (("tailrace_schemas.progress", "FORMAT"), ("tailrace.publish.reports", "LOSS_VERSION")),
    "`.dead-letter`": (("tailrace.publish.reports", "LETTER_FORMAT"),),
    "`.schema-history`": (("tailrace.history.records", "FORMAT"), ("tailrace.history.records", "CUT")),
    "`.schema-changes`": (("tailrace.history.events", "FORMAT"),),
    "`.schemas`": (("tailrace_schemas.avro.registry", "FORMAT"), ("tailrace_schemas.table_json", "FORMAT")),
    "`.generations`": (
        ("tailrace_schemas.generation_records", "VERSION"),
        ("tailrace_schemas.generation_records", "EXPIRED_VERSION"),
    ),
    "the mark of a `cdc_raw`'s owner": (("tailrace.capture.owner", "_VERSION"),),
    "a spool's epoch": (("tailrace.retention.spool", "EPOCH_FORMAT"),),
    "a stream's checkpoint": (("tailrace_spark.job.checkpoint", "FORMAT"), ("tailrace_spark.job.checkpoint", "FORMAT")),
    "snapshots": (("tailrace_spark.snapshot.progress", "VERSION"), ("tailrace_spark.snapshot.records", "FORMAT")),
    "a sink's table catalog": (("tailrace_spark.merge.table_record", "VERSION"),),
    "stored rows and partitions": (
        ("tailrace_spark.rowstate.codec", "VERSION"),
        ("tailrace_spark.sinks.opensearch.state", "VERSION"),
    ),
    "stored truncations": (("tailrace_spark.rowstate.codec", "_TRUNCATIONS_VERSION"),),
    "tables of Tailrace's own in a SQL database": (("tailrace_spark.sinks.state_store.tables", "FORMAT"),),
    "tables of Tailrace's own in Cassandra": (("tailrace_spark.sinks.cassandra.sink_base", "FORMAT"),),
    "every table of a `delta` or `iceberg` sink": (("tailrace_spark.sinks.lake.store", "FORMAT"),),
    "`.sink-letters`": (("tailrace_spark.batch.delivery", "LETTER_FORMAT"),),
    "a sink's progress": (
        ("tailrace_spark.batch.delivery", "FORMAT"),
        ("tailrace_spark.sinks.kafka.progress", "FORMAT"),
    ),
    "the reach of a `files` sink": (("tailrace_spark.sinks.files.store", "FORMAT"),),
    "backups of the meta database": (("tailrace_server.meta.backup", "FORMAT"),),
}
"""By the beginning of a row's first cell. The meta database has Alembic's revisions."""

NOT_KEPT: Final[Mapping[Constant, str]] = {
    ("tailrace_schemas.entries", "VERSION"): "ScyllaDB's, of a stream id",
    ("tailrace_spark.job.checkpoint", "_VERSION"): "who holds a lock: read for an error's words alone",
}
"""Constants of such names that are of nothing which an earlier version reads."""
