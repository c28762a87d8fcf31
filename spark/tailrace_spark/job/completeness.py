"""Up to which write time every host's changes are written: from hosts' progress, and what the stream has read. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tailrace_schemas.progress import Progress
from tailrace_schemas.topics import KafkaPartition

Ends = Mapping[KafkaPartition, int]
"""An offset of each partition: its end, or what has been read up to."""


@dataclass(frozen=True, slots=True)
class Completeness:
    """Milliseconds since 1970: what was written before is published by every host; None where that is not known.

    `waits_for` says in words what holds it back, if anything does.
    """

    time: int | None
    waits_for: str = ""


def published_to(progress: Iterable[Progress], ring: Collection[str], lateness_ms: int) -> Completeness:
    """The time up to which all hosts have published: those of the ring, and those that were not retired.

    A change is in a host's log at most `lateness_ms` after its write time, and released. Mutations that are parked come
    later than what is published behind them, so a host that has some says nothing.
    """
    hosts = {record.host: record for record in progress}
    if absent := sorted(set(ring) - hosts.keys()):
        return Completeness(None, f"host {absent[0]} has published no progress yet: is its agent running?")
    if not hosts:
        return Completeness(None, "no host has published progress yet: is an agent running?")
    for host, record in sorted(hosts.items()):
        if record.parked:
            return Completeness(None, f"host {host} has {record.parked} parked mutations: see tailrace parked list")
        if record.complete_to is None:
            return Completeness(None, f"host {host} has not published its log to the end yet")
    slowest = min(hosts.values(), key=lambda record: record.complete_to or 0)
    words = f"host {slowest.host}"
    if slowest.host not in ring:
        words += ", which is not in the ring any more: see tailrace hosts retire"
    return Completeness((slowest.complete_to or 0) - lateness_ms, words)


class WatermarkTracker:
    """The time up to which each topic's part of the log is complete.

    A mark is a time up to which all hosts have published, with the ends that a topic's partitions had after that was
    known. Once the stream has written up to there, everything before that time is written.
    """

    def __init__(self) -> None:
        self._pending: dict[str, tuple[int, Ends]] = {}
        self._reached: dict[str, int] = {}

    def step(
        self, published: Completeness, ends: Ends, written: Ends, topics: Iterable[str]
    ) -> dict[str, Completeness]:
        """Each topic's; `ends` are high watermarks that were asked for after `published` was read, `written` is what
        the stream has written up to."""
        return {topic: self._topic(topic, published, ends, written) for topic in topics}

    def _topic(self, topic: str, published: Completeness, ends: Ends, written: Ends) -> Completeness:
        self._settle(topic, written)
        reached = self._reached.get(topic)
        if topic not in self._pending and published.time is not None and (reached is None or published.time > reached):
            topic_ends = {partition: end for partition, end in ends.items() if partition[0] == topic}
            self._pending[topic] = published.time, topic_ends
            self._settle(topic, written)
        if topic not in self._pending:
            return Completeness(self._reached.get(topic), published.waits_for)
        return Completeness(self._reached.get(topic), "the stream, which has not written everything yet")

    def _settle(self, topic: str, written: Ends) -> None:
        mark = self._pending.get(topic)
        if mark is not None and all(written.get(partition, 0) >= end for partition, end in mark[1].items()):
            self._reached[topic] = mark[0]
            del self._pending[topic]
