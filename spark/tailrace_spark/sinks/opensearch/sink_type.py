"""The type `opensearch`: an index for each source table."""

from __future__ import annotations

from typing import Final

from tailrace_spark.sinks.opensearch.settings import OpensearchSinkSettings
from tailrace_spark.sinks.protocol import ReachableSink
from tailrace_spark.sinks.sink_type import Kind, SinkType, Surroundings


def _open(name: str, settings: OpensearchSinkSettings, around: Surroundings) -> ReachableSink:
    from tailrace_spark.sinks.opensearch.client import SearchClient
    from tailrace_spark.sinks.opensearch.sink import OpensearchSink

    return OpensearchSink(SearchClient(name, settings), settings, ring_delay=around.ring_delay, letters=around.letters)


OPENSEARCH: Final = SinkType(
    name="opensearch",
    settings=OpensearchSinkSettings,
    kinds=(Kind.MERGING,),
    guarantee="A document for each row, which reads as SELECT reads the source, whatever comes late, again or "
    "in another order; each is written under the store's own concurrency check.",
    extra="opensearch",
    packages=("httpx2",),
    document="docs/sinks/opensearch.md",
    open=_open,
    where="url",
)
