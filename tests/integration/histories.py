"""Changes of several keys, the stream that writes them, and what they leave."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from tailrace_common.settings import Settings
from tailrace_schemas.change import Change
from tailrace_spark.job.metrics import StreamMetrics
from tailrace_spark.job.progress import Progress, SinkInfo
from tailrace_spark.rowstate.partition import Partition
from tailrace_spark.sinks.registry import sink_of
from tests.integration.streams import followed
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAIN = table({"id": "int"}, {"c": "int"}, regular={"v": "text", "tags": "set<text>"}, keyspace="shop", name="plain")
LOG = Log(PLAIN)
KEYS = range(6)


def history(begin: int) -> list[Change]:
    """Changes of several keys, each later than those before."""
    changes: list[Change] = []
    for at in range(begin, begin + 5):
        changes += [LOG.update((key,), (at % 3,), at, v=f"{at}", tags={str(at): ""}) for key in KEYS]
    return [*changes, LOG.delete_range((0,), (1,), (2,), begin + 3)]


def follow(spark: SparkSession, settings: Settings, name: str) -> list[Progress]:
    """Stream what is there into [sink.NAME], with its own checkpoint."""
    stream = settings.stream.model_copy(update={"checkpoint": f"{settings.stream.checkpoint}-{name}"})
    own = settings.model_copy(update={"stream": stream})
    with closing(sink_of(settings, name)) as sink:
        sink.reach()
        metrics = StreamMetrics(SinkInfo(name, "", settings.sink[name].location, ""))
        return followed(spark, own, sink, metrics=metrics)


def states(changes: Mapping[bytes, list[Change]]) -> dict[bytes, Partition]:
    """What is known of each partition by its changes."""
    found = {key: Partition() for key in changes}
    for key, some in changes.items():
        for change in some:
            found[key].absorb(change)
    return found


def by_key(changes: list[Change]) -> dict[bytes, list[Change]]:
    return {change.key or b"": [one for one in changes if one.key == change.key] for change in changes}
