"""Reads from Kafka the progress of a prefix's hosts, their ring, and the ends of topics."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from tailrace_common.closing import Closing
from tailrace_common.kafka import PartitionEnds
from tailrace_common.properties.passthrough import Scalar
from tailrace_common.topics import GenerationReader, ProgressReader
from tailrace_schemas.progress import Progress
from tailrace_schemas.topics import Internal, internal_topic
from tailrace_spark.job.completeness import Ends


class KafkaHosts(Closing):
    """By readers of its own; nothing connects before the first question. One thread at a time."""

    def __init__(self, config: Mapping[str, Scalar], prefix: str) -> None:
        """`config` is librdkafka's."""
        self._config = config
        self._prefix = prefix
        self._progress: ProgressReader | None = None
        self._generations = GenerationReader.open(config, internal_topic(prefix, Internal.GENERATIONS))
        self._ends = PartitionEnds(config)
        self._ring: tuple[UUID, frozenset[str]] | None = None

    def progress(self) -> Collection[Progress]:
        """Each host's newest progress. Raises ServiceError."""
        if self._progress is None:
            self._progress = ProgressReader(self._config, self._prefix)
        return self._progress.read()

    def ring(self) -> Collection[str]:
        """The hosts of the newest generation's ring; none before there is one. Raises ServiceError."""
        published = self._generations.refresh()
        if not published:
            return frozenset()
        newest = published[-1]
        if self._ring is None or self._ring[0] != newest.uuid:  # a large ring takes seconds to unpack
            self._ring = newest.uuid, frozenset(node.host for node in newest.unpack().ring.nodes if node.tokens)
        return self._ring[1]

    def ends(self, topics: Collection[str]) -> Ends:
        """The high watermarks of these topics' partitions. Raises ServiceError."""
        return self._ends.high_watermarks(topics)

    def close(self) -> None:
        """Leave Kafka."""
        self._generations.close()
        if self._progress is not None:
            self._progress.close()
