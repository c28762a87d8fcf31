"""Where a subscription's stream begins: at its progress, else at its start, by the offsets that Kafka has."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Protocol

from tailrace_schemas.errors import DataLossError
from tailrace_schemas.topics import KafkaPartition
from tailrace_server.model.subscription import EARLIEST, Subscription

Offsets = Mapping[KafkaPartition, int]


class Broker(Protocol):
    """Kafka, as `tailrace_common.kafka.StartOffsets` asks it."""

    def partitions(self, pattern: str) -> Collection[KafkaPartition]: ...

    def earliest(self, partitions: Collection[KafkaPartition]) -> Offsets: ...

    def latest(self, partitions: Collection[KafkaPartition]) -> Offsets: ...

    def at(self, partitions: Collection[KafkaPartition], milliseconds: int) -> Offsets: ...


def beginning(
    subscription: Subscription, stored: Offsets, broker: Broker, pattern: str, *, stops: bool
) -> dict[KafkaPartition, int]:
    """The offset at which each partition that there is begins to be read. `stored` is its progress.

    A partition without progress is read from its first record: its topic is newer. `stops` is
    stream.fail_on_data_loss: then DataLossError is raised where Kafka deleted what was not read, or the topic was made
    again. Raises ServiceError.
    """
    partitions = broker.partitions(pattern)
    firsts = broker.earliest(partitions)
    if not stored:
        return dict(_at_start(subscription, broker, partitions, firsts))
    ends = broker.latest(partitions)
    offsets = {}
    for partition in partitions:
        offset = stored.get(partition, firsts[partition])
        if not firsts[partition] <= offset <= ends[partition]:
            if stops:
                raise DataLossError(_lost(subscription, partition, offset, firsts[partition], ends[partition]))
            offset = firsts[partition]
        offsets[partition] = offset
    return offsets


def _at_start(
    subscription: Subscription, broker: Broker, partitions: Collection[KafkaPartition], firsts: Offsets
) -> Offsets:
    start = subscription.start
    if start.milliseconds is not None:
        return broker.at(partitions, start.milliseconds)
    return firsts if start.word == EARLIEST else broker.latest(partitions)


def _lost(subscription: Subscription, partition: KafkaPartition, offset: int, first: int, end: int) -> str:
    topic, index = partition
    why = (
        f"Kafka deleted its records {offset} to {first - 1} before they were read"
        if offset < first
        else f"it ends at {end}, and was read to {offset}: somebody made it again"
    )
    return (
        f"topic {topic}, partition {index}: {why}. `tailrace reset {subscription.reference} --from earliest` reads "
        "what is left from its beginning; with stream.fail_on_data_loss = false that happens by itself"
    )


def source_options(offsets: Offsets) -> dict[str, str]:
    """The options of Spark's Kafka source that begin there. Topics that appear later are read from their beginning."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return {"startingOffsets": json.dumps(topics) if topics else EARLIEST}
