"""The type `delta`: Delta tables."""

from __future__ import annotations

from typing import Final

from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tailrace_spark.sinks.protocol import ReachableSink
from tailrace_spark.sinks.sink_type import Kind, SinkType, Surroundings


def _open(name: str, settings: DeltaSinkSettings, around: Surroundings) -> ReachableSink:  # noqa: ARG001 - an Opener's
    from tailrace_spark.sinks.delta.store import DeltaStore
    from tailrace_spark.sinks.lake.sink import lake_sink

    return lake_sink(DeltaStore(settings), settings, around)


DELTA: Final = SinkType(
    name="delta",
    settings=DeltaSinkSettings,
    kinds=(Kind.CHANGE_LOG, Kind.MERGING),
    guarantee="Each change is a row of its table exactly once, whatever comes again, a micro-batch one commit of each "
    'table; with mode = "current" a table reads as SELECT reads the source.',
    extra="delta",
    packages=("deltalake", "pyarrow"),
    document="docs/sinks/delta.md",
    open=_open,
    where="path",
)
