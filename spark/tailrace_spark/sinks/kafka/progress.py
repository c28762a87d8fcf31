"""How far a sink is, in its topic of progress: by partition of the source, and which plan of tasks is the newest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from tailrace_common.kafka import PartitionReader
from tailrace_common.properties.passthrough import Scalar
from tailrace_schemas.errors import FencedError
from tailrace_schemas.formats import require_format
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.sinks.changelog.sink import encoded
from tailrace_spark.sinks.kafka.json_format import KafkaRecord

Next = dict[KafkaPartition, int]
"""By topic and partition of the source, the first offset that has not gone out."""

FORMAT: Final = 1

_PLAN: Final = "plan"
_NEXT: Final = "next"
_BY_TASKS: Final = "tasks"
_FORMAT: Final = "format"


def progress_record(
    topic: str, sink: str, partition: KafkaPartition, next_offset: int, *, by_tasks: bool = False
) -> KafkaRecord:
    """Says how far a partition is; `by_tasks`: tasks have written it, or may do so now."""
    value = {_NEXT: next_offset, _BY_TASKS: True} if by_tasks else {_NEXT: next_offset}
    return KafkaRecord(topic, 0, encoded([sink, *partition]), encoded({**value, _FORMAT: FORMAT}))


def plan_record(topic: str, sink: str, plan: str) -> KafkaRecord:
    """Says which plan is the newest: tasks of others write no more."""
    return KafkaRecord(topic, 0, encoded([sink]), encoded({_PLAN: plan, _FORMAT: FORMAT}))


class Progress:
    """What the topic says of one sink, read on at each `read`: from the offset `since`, by when it said
    `next_offsets`."""

    def __init__(
        self, config: Mapping[str, Scalar], topic: str, sink: str, since: int = 0, next_offsets: Next | None = None
    ) -> None:
        self._sink = sink
        self._reader = PartitionReader(config, topic, 0, begin=since)
        self.next: Next = dict(next_offsets or {})
        self.by_tasks: set[KafkaPartition] = set()
        self.plan: str | None = None

    @property
    def offset(self) -> int:
        """That of the first record which is not read yet."""
        return self._reader.next_offset

    def read(self) -> None:
        """Read on to the end, when open transactions have ended.

        Raises ServiceError, and SettingsError for a record of another format.
        """
        for record in self._reader.read_to_end():
            key = json.loads(record.key or b"[]")
            if record.value is None or key[:1] != [self._sink]:
                continue
            value = json.loads(record.value)
            require_format(f"the progress of sink {self._sink}", value.get(_FORMAT), FORMAT)
            if len(key) == 1:
                self.plan = value[_PLAN]
                continue
            _, topic, partition = key
            self.next[topic, partition] = value[_NEXT]
            if value.get(_BY_TASKS) is True:
                self.by_tasks.add((topic, partition))
            else:
                self.by_tasks.discard((topic, partition))

    def read_within(self, plan: str) -> None:
        """As `read`. Raises FencedError where another plan is the newest."""
        self.read()
        if self.plan != plan:
            raise FencedError(f"sink {self._sink} has a newer plan: this attempt at a task ends")

    def close(self) -> None:
        """Leave the topic; a later `read` connects again."""
        self._reader.close()
