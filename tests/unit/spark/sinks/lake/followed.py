"""Current tables in a directory, of each lake."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
from tests.unit.spark.sinks.delta.stores import FollowedDelta
from tests.unit.spark.sinks.iceberg.stores import FollowedIceberg

KINDS: Final = ("delta", "iceberg")


def made_at(kind: str, path: Path, buckets: int = 2, **options: Any) -> FollowedDelta | FollowedIceberg:
    """New ones."""
    if kind == "delta":
        return FollowedDelta(DeltaSinkSettings(path=str(path), mode="current", buckets=buckets), **options)
    return FollowedIceberg(IcebergSinkSettings(path=str(path), mode="current", buckets=buckets), **options)
