"""What a sink with `transactions` must do: changes of a mutation come together and marked, wherever batches end."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from hypothesis import strategies as st

from tailrace_schemas.change import Change, Origin, Source
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.position import Position
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.source.table_updates import WholeUpdates, with_transactions
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import Crash, Outside
from tests.unit.tables import table

ROWS = table({"pk": "int"}, {"ck": "int"}, regular={"v": "int"}, keyspace="shop", name="feed")
LOG = Log(ROWS)
TOPIC = "t.shop.feed"
PARTITION: KafkaPartition = (TOPIC, 0)
POISON = 13
"""A value of v that some endpoints refuse."""


def mutation(host: str, number: int, size: int, poisoned: int | None = None) -> list[Change]:
    """So many rows of one partition, written together; of the key `number` modulo 3."""
    changes = []
    for index in range(size):
        row = LOG.insert((number % 3,), (index,), 1_000_000 + number, v=POISON if index == poisoned else 0)
        digest = hashlib.blake2b(f"{number}/{index}/{host}".encode(), digest_size=16).digest()
        source = Source(host, "dc1", Position(1, 5, 100 + number), index, size, Origin.LOG)
        changes.append(replace(row, digest=digest, source=source))
    return changes


def records_of(changes: Iterable[Change]) -> list[Delivered]:
    """The changes as the records of Kafka's partition."""
    return [
        Delivered(RecordId(TOPIC, 0, offset, b"12345678"), change, message=b"\0m")
        for offset, change in enumerate(changes)
    ]


@st.composite
def topics(draw: st.DrawFn, poison: bool = False) -> list[Delivered]:
    """What a partition may hold: the mutations of three hosts, each in order, mixed with one another's."""
    waiting = {host: [change for number, size in enumerate(draw(st.lists(st.integers(1, 5), max_size=4)))
                      for change in mutation(host, number, size,
                                             draw(st.none() | st.integers(0, size - 1)) if poison else None)]
               for host in "abc"}  # fmt: skip
    mixed: list[Change] = []
    while any(waiting.values()):
        host = draw(st.sampled_from([host for host, changes in waiting.items() if changes]))
        mixed.append(waiting[host].pop(0))
    return records_of(mixed)


@dataclass(frozen=True)
class Mark:
    """What a record must say."""

    id: str
    index: int
    count: int


def marks_of(log: Sequence[Delivered]) -> dict[int, Mark]:
    """By offset: told from the log alone, mutation by mutation."""
    mutations: dict[tuple[str, int], list[Delivered]] = defaultdict(list)
    for delivered in log:
        source = delivered.change.source
        assert source is not None
        mutations[source.host, source.position.offset].append(delivered)
    marks: dict[int, Mark] = {}
    for changes in mutations.values():
        digest = hashlib.blake2b(b"".join(one.change.digest for one in changes), digest_size=16).hexdigest()
        for index, delivered in enumerate(changes):
            marks[delivered.record_id.offset] = Mark(digest, index, len(changes))
    return marks


def batch(log: Sequence[Delivered], begin: int, end: int, step: int = 2) -> Iterator[Piece]:
    """A micro-batch as a stream gives it to such a sink: the rest of its last mutations is read `step` by step."""

    def read_on(partition: KafkaPartition, place: int) -> tuple[Iterable[Piece], int | None]:
        assert partition == PARTITION
        return [Piece(tuple(log[place : place + step]))], place + step if place + step < len(log) else None

    own = [Piece(tuple(log[at : min(at + 3, end)])) for at in range(begin, end, 3)]
    return with_transactions(WholeUpdates(lambda: own, {PARTITION: end}, read_on))


def told(record: Mapping[str, Any]) -> Mark:
    """What a record says."""
    return Mark(**record["transaction"])


def require_whole(records: Sequence[Mapping[str, Any]], marks: Mapping[int, Mark]) -> None:
    """Each record is marked as it must be, and where one of a mutation is, all are, in order."""
    by_id: dict[str, list[int]] = defaultdict(list)
    for record in records:
        assert told(record) == marks[record["offset"]]
        by_id[told(record).id].append(told(record).index)
    counts = {mark.id: mark.count for mark in marks.values()}
    assert by_id == {identity: list(range(counts[identity])) for identity in by_id}


def require_together(outside: Outside, log: Sequence[Delivered], cuts: Sequence[int], steps: Sequence[int]) -> None:
    """Batches that end at `cuts`; each is tried by a process that dies after `steps`, and comes again cut otherwise."""
    marks, begin = marks_of(log), 0
    ends = sorted({*(min(cut, len(log)) for cut in cuts), len(log)} - {0})
    for number, end in enumerate(ends):
        first = (begin + end + 1) // 2 if number % 2 else end
        sink = outside.open(dies_after=steps[number % len(steps)]) if steps else outside.open()
        with closing(sink), suppress(Crash, ServiceError):
            write_here(sink, batch(log, begin, first))
        require_whole(outside.records(), marks)
        with closing(outside.open()) as again:
            write_here(again, batch(log, begin, end))
        require_whole(outside.records(), marks)
        begin = end
    offsets = sorted(record["offset"] for record in outside.records())
    assert offsets == list(range(len(log)))


def numbers() -> Iterator[int]:
    """For names that are used once."""
    return count()
