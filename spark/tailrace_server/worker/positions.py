"""Where a subscription's stream begins: at its progress, else at its start, by the offsets that Kafka has."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Protocol

from tailrace_schemas.errors import DataLossError
from tailrace_schemas.topics import KafkaPartition
from tailrace_server.model.subscription import EARLIEST, Subscription, Topics
from tailrace_spark.batch.sink_progress import by_topic

Offsets = Mapping[KafkaPartition, int]


class Broker(Protocol):
    """Kafka, as `tailrace_common.kafka.StartOffsets` asks it."""

    def partitions(self, pattern: str) -> Collection[KafkaPartition]: ...

    def earliest(self, partitions: Collection[KafkaPartition]) -> Offsets: ...

    def latest(self, partitions: Collection[KafkaPartition]) -> Offsets: ...

    def at(self, partitions: Collection[KafkaPartition], milliseconds: int) -> Offsets: ...

    def ids(self, topics: Collection[str]) -> Mapping[str, str]: ...


def beginning(
    subscription: Subscription, stored: Offsets, broker: Broker, pattern: str, *, stops: bool
) -> tuple[Offsets, Topics]:
    """The offset at which each partition that there is begins to be read, and their topics. `stored` is its progress.

    A partition without progress is read from its first record: its topic is newer. `stops` is
    stream.fail_on_data_loss: then DataLossError is raised where Kafka deleted what was not read, or the topic was made
    again. Raises ServiceError.
    """
    partitions = broker.partitions(pattern)
    firsts, topics = broker.earliest(partitions), subscription.topics
    ids = broker.ids({topic for topic, _ in partitions})
    if not stored:
        return _at_start(subscription, broker, partitions, firsts), replace(topics, ids=ids)
    ends = broker.latest(partitions)
    again = {topic for topic, now in ids.items() if topics.ids.get(topic, now) != now}
    again |= {partition[0] for partition in partitions if stored.get(partition, 0) > ends[partition]}
    offsets = {}
    for partition in partitions:
        offset, first = stored.get(partition, firsts[partition]), firsts[partition]
        if stops and (partition[0] in again or offset < first):
            raise DataLossError(_lost(subscription, partition, offset, first, again=partition[0] in again))
        offsets[partition] = first if partition[0] in again else max(offset, first)
    readings = {topic: name for topic, name in ids.items() if topic in again}
    return offsets, Topics(ids={**topics.ids, **ids}, readings={**topics.readings, **readings})


def _at_start(
    subscription: Subscription, broker: Broker, partitions: Collection[KafkaPartition], firsts: Offsets
) -> Offsets:
    start = subscription.start
    if start.milliseconds is not None:
        return broker.at(partitions, start.milliseconds)
    return firsts if start.word == EARLIEST else broker.latest(partitions)


def _lost(subscription: Subscription, partition: KafkaPartition, offset: int, first: int, *, again: bool) -> str:
    topic, index = partition
    deleted = f"Kafka deleted its records {offset} to {first - 1} before they were read"
    why = f"it was read to {offset}, and somebody made it again" if again else deleted
    return (
        f"topic {topic}, partition {index}: {why}. `tailrace reset {subscription.reference} --from earliest` reads "
        "what is left from its beginning; with stream.fail_on_data_loss = false that happens by itself"
    )


def source_options(offsets: Offsets) -> dict[str, str]:
    """The options of Spark's Kafka source that begin there. Topics that appear later are read from their beginning."""
    return {"startingOffsets": json.dumps(by_topic(offsets)) if offsets else EARLIEST}
