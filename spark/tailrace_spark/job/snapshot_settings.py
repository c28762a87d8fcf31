"""How a table is read by the settings of a stream: [cluster] says where, [snapshot] how gently."""

from __future__ import annotations

from typing import Final

from tailrace_common.sections.cassandra import CassandraSettings
from tailrace_common.sections.stream import ReadLimits
from tailrace_common.settings import Settings
from tailrace_spark.snapshot.settings import SnapshotSettings

_FILES: Final = frozenset({"password_file", "tls_key_password_file"})


def read_settings(
    settings: Settings, *, table: str, where: str | None = None, concurrent_ranges: int = 1
) -> SnapshotSettings:
    """Those of the data source, to read "keyspace.table" as changes. Secrets are in it, as values."""
    cluster, limits = settings.cluster, settings.snapshot
    named = {name: getattr(cluster, name) for name in CassandraSettings.model_fields if name not in _FILES}
    named |= {name: getattr(limits, name) for name in ReadLimits.model_fields}
    return SnapshotSettings(
        **{**named, "concurrent_ranges": concurrent_ranges},
        table=table,
        rows="changes",
        prefix=settings.topics.prefix,
        filter=where,
        # Cassandra asks for it wherever a condition stands beside a range of tokens.
        allow_filtering=where is not None,
    )
