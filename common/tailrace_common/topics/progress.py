"""How far each host's changes are published, as `<prefix>.progress` says: for readers of quiet tables, and people."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace_common.closing import Closing
from tailrace_common.kafka import DEFAULT_TIMEOUT_SECONDS, TopicReader
from tailrace_common.properties.passthrough import Scalar
from tailrace_schemas.errors import CorruptError
from tailrace_schemas.progress import Progress, decode_progress
from tailrace_schemas.topics import Internal, internal_topic


class ProgressReader(Closing):
    """The newest progress record of each host under a prefix; one thread at a time.

    A change and the progress that covers it are committed together, but become visible partition by partition. So read
    the progress first, then a table's topic, read_committed, up to the *high watermark* of its partitions after that.
    Wait for open transactions, as TopicReader.read_to_end does: the last stable offset is no end. Then every change of
    the host at or below the position has been read, except parked ones.
    """

    def __init__(self, config: Mapping[str, Scalar], prefix: str, *, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> None:
        """Connect. Raises ServiceError where the topic does not exist, or Kafka does not answer."""
        topic = internal_topic(prefix, Internal.PROGRESS)
        self._reader = TopicReader(config, topic, beginning=True, timeout=timeout)
        self._newest: dict[bytes, Progress] = {}

    def read(self) -> tuple[Progress, ...]:
        """The hosts' progress up to now, by cluster and host. Raises ServiceError.

        A record that this version cannot read leaves its host out: what it covers is not known.
        """
        for _, record in self._reader.read_to_end():
            if record.key is None:
                continue
            self._newest.pop(record.key, None)
            if record.value is not None:
                try:
                    self._newest[record.key] = decode_progress(record.key, record.value)
                except CorruptError:
                    continue
        return tuple(sorted(self._newest.values(), key=lambda progress: (progress.cluster, progress.host)))

    def close(self) -> None:
        """End the connection."""
        self._reader.close()
