"""The settings by which the job's `Stream` runs one subscription."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final, Protocol

from tailrace_common.settings import Settings
from tailrace_schemas.errors import DataLossError
from tailrace_schemas.topics import MAX_NAME, KafkaPartition, topic_component
from tailrace_server.model.subscription import EARLIEST, ONLY, Subscription, TableName, Topics
from tailrace_server.operations.asking import own_settings
from tailrace_spark.job.offsets import Offsets
from tailrace_spark.source.readings import reading_of

_SUFFIX: Final = r"\.-[0-9a-f]{6}"
_LONGEST_KEYSPACE: Final = 48


def stream_settings(base: Settings, subscription: Subscription, checkpoint: str) -> Settings:
    """Those of the server, with the target, the filter, the masks and the topics of a subscription.

    Raises SettingsError where they no longer fit this version.
    """
    name = subscription.sink_name
    settings = own_settings(base, subscription.table, name, subscription.sink, subscription.shape)
    return settings.with_stream(topics=topics_pattern(subscription), checkpoint=checkpoint)


def topics_pattern(subscription: Subscription) -> str:
    """A regular expression of the topics of its tables, in the words that Java and Python share.

    Topics that Kafka's rules gave a suffix are among them (docs/contracts.md 4). Where `reads_cut_names` says so, it
    also matches topics of tables whose names go on otherwise.
    """
    table = subscription.table
    beginning = rf"{re.escape(table.cluster)}\.{_expression(table.keyspace)}\."
    uncut = rf"{beginning}{_expression(table.table)}({_SUFFIX})?"
    if not reads_cut_names(table):
        return uncut
    head = _expression(table.table.partition("*")[0][: _room(table)])
    rest = "[^.]*" if "*" in table.keyspace + table.table else ""
    return rf"(?:{uncut}|(?=.{{{MAX_NAME}}}$){beginning}{head}{rest}{_SUFFIX})"


def reads_cut_names(table: TableName) -> bool:
    """Whether the topic of a table that fits may have a name so long that its end was cut off."""
    head, star, rest = table.table.partition("*")
    return len(head) > _room(table) or bool(star and rest)


def _room(table: TableName) -> int:
    """How many characters of a table's name are in the name of its topic at least, where that was cut."""
    keyspace = _LONGEST_KEYSPACE if "*" in table.keyspace else len(table.keyspace)
    return MAX_NAME - len(".-012345") - len(table.cluster) - keyspace - len("..")


def _expression(pattern: str) -> str:
    """What goes back at no letter: each `*` but the last stands for as little as lets what follows it fit."""
    first, *later = map(_letters, re.split(r"\*+", pattern))
    if not later:
        return first
    return first + "".join(f"(?>[^.]*?{letters})" for letters in later[:-1]) + f"[^.]*{later[-1]}"


def _letters(pattern: str) -> str:
    return "".join("[^.]" if sign == "?" else re.escape(topic_component(sign)) for sign in pattern)


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
    if stored and subscription.snapshot == ONLY:  # no log is read; who asks for it later is told what it lost
        return stored, subscription.topics
    partitions = broker.partitions(pattern)
    firsts, topics = broker.earliest(partitions), subscription.topics
    ids = broker.ids({topic for topic, _ in partitions})
    if not stored and not topics.begun:
        return _at_start(subscription, broker, partitions, firsts), replace(topics, ids=ids, begun=True)
    ends = broker.latest(partitions)
    again = {topic for topic, now in ids.items() if topics.ids.get(topic, now) != now}
    again |= {partition[0] for partition in partitions if stored.get(partition, 0) > ends[partition]}
    offsets = {}
    for partition in partitions:
        offset, first = stored.get(partition, firsts[partition]), firsts[partition]
        if stops and (partition[0] in again or offset < first):
            raise DataLossError(_lost(subscription, partition, offset, first, again=partition[0] in again))
        offsets[partition] = first if partition[0] in again else max(offset, first)
    readings = {topic: reading_of(ids[topic], topics.ids.get(topic)) for topic in again}
    return offsets, replace(topics, ids={**topics.ids, **ids}, readings={**topics.readings, **readings})


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
