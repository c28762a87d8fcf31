"""The reader of `<prefix>.snapshots`: the snapshots of a prefix, and how far the ranges of each are."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from tailrace_common.closing import Closing
from tailrace_common.kafka import PartitionReader
from tailrace_common.properties.passthrough import Scalar
from tailrace_schemas.errors import CorruptError
from tailrace_schemas.topics import Internal, internal_topic
from tailrace_spark.snapshot.records import (
    RangeRecord,
    SnapshotRecord,
    decode_range,
    decode_snapshot,
    parse_key,
)

# A broker lets a reader at the end wait so long before it says so; by default half a second, for each range.
_PROMPT: Final[Mapping[str, Scalar]] = {"fetch.wait.max.ms": 50}
log = logging.getLogger("tailrace_spark")


class SnapshotRecords(Closing):
    """What the topic says, read on at each `read`; one thread at a time. Nothing connects before the first one.

    With `only`, ranges of other snapshots are left out. `begin` is the offset to read from.
    """

    def __init__(self, kafka: Mapping[str, Scalar], prefix: str, *, only: str | None = None, begin: int = 0) -> None:
        config = {**kafka, **_PROMPT}
        self._reader = PartitionReader(config, internal_topic(prefix, Internal.SNAPSHOTS), 0, begin=begin)
        self._only = only
        self.snapshots: dict[str, SnapshotRecord] = {}
        self.ranges: dict[str, dict[int, RangeRecord]] = {}

    @property
    def offset(self) -> int:
        """That of the first record that is not read yet."""
        return self._reader.next_offset

    def read(self) -> None:
        """Read on to the end, when open transactions have ended. Raises ServiceError."""
        for record in self._reader.read_to_end():
            try:
                self._take(record.key or b"", record.value)
            except CorruptError as error:
                log.warning("%s: the record at offset %d is skipped: %s", self._reader, record.offset, error)

    def unfinished(self, table_id: UUID, within: str | None) -> SnapshotRecord | None:
        """The newest snapshot of a table and token range that has not ended."""
        running = [
            record
            for record in self.snapshots.values()
            if (record.table_id, record.within, record.ended) == (table_id, within, None)
        ]
        return max(running, key=lambda record: record.started, default=None)

    def ranges_of(self, snapshot_id: str) -> dict[int, RangeRecord]:
        """How far the ranges of a snapshot are, by their numbers; none of those that nothing is out of."""
        return self.ranges.get(snapshot_id, {})

    def close(self) -> None:
        """Leave the topic."""
        self._reader.close()

    def _take(self, key: bytes, value: bytes | None) -> None:
        snapshot_id, index = parse_key(key)
        if self._only not in (None, snapshot_id):
            return
        if index is None:
            if value is None:
                self.snapshots.pop(snapshot_id, None)
            else:
                self.snapshots[snapshot_id] = decode_snapshot(snapshot_id, value)
        elif value is None:
            self.ranges.get(snapshot_id, {}).pop(index, None)
        else:
            self.ranges.setdefault(snapshot_id, {})[index] = decode_range(value)
