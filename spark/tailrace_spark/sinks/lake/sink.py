"""What `tailrace stream` writes into a lake."""

from __future__ import annotations

from tailrace_spark.sinks.lake.current import LakeCurrent
from tailrace_spark.sinks.lake.history import LakeHistory, history_sink
from tailrace_spark.sinks.lake.settings import LakeSettings
from tailrace_spark.sinks.lake.store import LakeStore
from tailrace_spark.sinks.protocol import ReachableSink
from tailrace_spark.sinks.sink_type import Surroundings


def lake_sink(store: LakeStore, settings: LakeSettings, around: Surroundings) -> ReachableSink:
    """Histories, or current tables."""
    if settings.mode == "history":
        return history_sink(LakeHistory(store, letters=around.letters))
    return LakeCurrent(
        store,
        settings.buckets,
        ring_delay=around.ring_delay,
        merge_horizon=settings.merge_horizon_seconds or None,
        letters=around.letters,
    )
