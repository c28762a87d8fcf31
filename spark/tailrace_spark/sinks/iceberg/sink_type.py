"""The type `iceberg`: Iceberg tables."""

from __future__ import annotations

from typing import Final

from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
from tailrace_spark.sinks.protocol import ReachableSink
from tailrace_spark.sinks.sink_type import Kind, SinkType, Surroundings


def _open(name: str, settings: IcebergSinkSettings, around: Surroundings) -> ReachableSink:  # noqa: ARG001 - an Opener's
    from tailrace_spark.sinks.iceberg.store import IcebergStore
    from tailrace_spark.sinks.lake.sink import lake_sink

    return lake_sink(IcebergStore(settings), settings, around)


ICEBERG: Final = SinkType(
    name="iceberg",
    settings=IcebergSinkSettings,
    kinds=(Kind.CHANGE_LOG, Kind.MERGING),
    guarantee="Each change is a row of its table exactly once, whatever comes again, a micro-batch one commit of each "
    'table; with mode = "current" a table reads as SELECT reads the source.',
    extra="iceberg",
    packages=("pyarrow", "pyiceberg", "sqlalchemy"),
    document="docs/sinks/iceberg.md",
    open=_open,
    where="path",
)
