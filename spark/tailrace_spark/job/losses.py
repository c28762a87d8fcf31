"""Finds records that a stream can no longer read, by its own offsets and those that Kafka has. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Final

from tailrace_common.kafka import TopicState
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.job.offsets import Plan

DELETED: Final = "was deleted"
RECREATED: Final = "was deleted and created again"
TRIMMED: Final = "lost records that were not read yet, to its retention or by hand"


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets of a partition that were not read: from the first up to before `end`; None: nobody knows the end."""

    partition: int
    first: int
    end: int | None

    def __str__(self) -> str:
        if self.end is None:
            return f"partition {self.partition} from offset {self.first} on"
        return f"partition {self.partition} offsets {self.first} to {self.end - 1}"


@dataclass(frozen=True, slots=True)
class Loss:
    """One topic's loss: why, and which offsets were not read, by partition."""

    topic: str
    why: str
    spans: tuple[Span, ...]

    @property
    def offsets(self) -> int:
        """So many are known to be lost; marks of transactions are among them."""
        return sum(span.end - span.first for span in self.spans if span.end is not None)

    def __str__(self) -> str:
        return f"topic {self.topic} {self.why}; not read: {', '.join(map(str, self.spans)) or 'no partition'}"


def topics_of(plan: Plan) -> Set[str]:
    """The topics that a plan has offsets of."""
    return {topic for topic, _ in (*plan.start, *plan.end)}


def find_losses(plan: Plan, ids: Mapping[str, str], states: Mapping[str, TopicState]) -> list[Loss]:
    """The losses by topic: records of a batch, or of the next one, that Kafka no longer has.

    `ids` are those that topics had when they were read first; `states` has the topics that are there.
    """
    losses = []
    for topic in sorted(topics_of(plan)):
        state = states.get(topic)
        partitions = sorted({partition for name, partition in (*plan.start, *plan.end) if name == topic})
        if state is None:
            losses.append(Loss(topic, DELETED, tuple(_unread(plan, topic, partition) for partition in partitions)))
        elif _is_another(plan, topic, ids, state):
            losses.append(Loss(topic, RECREATED, tuple(_unread(plan, topic, partition) for partition in partitions)))
        elif spans := _trimmed(plan, topic, partitions, state):
            losses.append(Loss(topic, TRIMMED, spans))
    return losses


def without(plan: Plan, topics: Set[str]) -> Plan:
    """The plan less some topics, as if they had never been read."""
    start, end = (
        {partition: offset for partition, offset in side.items() if partition[0] not in topics}
        for side in (plan.start, plan.end)
    )
    return Plan(start, end)


def moved(plan: Plan, offsets: Mapping[KafkaPartition, int]) -> Plan:
    """The plan with partitions that begin at these offsets, and end no earlier."""
    start = {**plan.start, **offsets}
    ends = {partition: max(offset, plan.end.get(partition, 0)) for partition, offset in offsets.items()}
    end = {**plan.end, **ends}
    return Plan(start, end)


def left_of(loss: Loss, state: TopicState) -> dict[KafkaPartition, int]:
    """The offsets at which a topic that lost records is read on."""
    return {(loss.topic, span.partition): state.starts[span.partition] for span in loss.spans}


def _is_another(plan: Plan, topic: str, ids: Mapping[str, str], state: TopicState) -> bool:
    """Whether it is a topic of the same name: by its id, or, where that was not noted, by its ends."""
    if topic in ids:
        return ids[topic] != state.id
    return any(
        offset > state.ends.get(partition, 0) for (name, partition), offset in plan.start.items() if name == topic
    )


def _unread(plan: Plan, topic: str, partition: int) -> Span:
    first = plan.start.get((topic, partition), 0)
    end = plan.end.get((topic, partition), 0)
    return Span(partition, first, end if end > first else None)


def _trimmed(plan: Plan, topic: str, partitions: list[int], state: TopicState) -> tuple[Span, ...]:
    spans = []
    for partition in partitions:
        first, start = plan.start.get((topic, partition), 0), state.starts.get(partition, 0)
        if start > first:
            spans.append(Span(partition, first, start))
    return tuple(spans)
