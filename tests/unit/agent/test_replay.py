"""Replay into Kafka, with Kafka in memory: the agent's records but for their origin, in whole mutations."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tailrace.changes.transcode import Message, Transcoder
from tailrace.errors import TooLargeError
from tailrace.history.schema import SchemaHistory
from tailrace.publish.record import Record
from tailrace.replay import Bounds, KafkaOutlet, Replayed, replay
from tailrace.segments.files import list_segments
from tailrace.segments.open_segment import OpenSegment
from tailrace_common.kafka import Pace
from tailrace_schemas.avro import Encoder, SchemaEntry, decode, entry_from_record, schema_records
from tailrace_schemas.avro.decode import written_of
from tailrace_schemas.change import Change, Origin, Source, record_times
from tailrace_schemas.errors import ServiceError, TruncatedError
from tailrace_schemas.position import NO_POSITION, Position
from tests.unit.changes.recorded import changes_in
from tests.unit.commitlog.recorded import recorded

KIND = "5.0.1/uncompressed"


@dataclass(slots=True)
class MemoryTransactions:
    """Committed transactions, and the open one; fails at the send with this number.

    Batches are as the `small` topics take them once those were met before the opening.
    """

    committed: list[list[Record]] = field(default_factory=list)
    open_records: list[Record] = field(default_factory=list)
    fails_at: int = -1
    opened: int = 0
    small: frozenset[str] = frozenset()
    met: set[str] = field(default_factory=set)
    fitting: frozenset[str] = frozenset()

    def open(self) -> None:
        self.opened += 1
        self.fitting = frozenset(self.met)

    def close(self) -> None:
        assert not self.open_records

    def fits(self, records: Iterable[Record]) -> bool:
        small = self.small.intersection(record.topic for record in records)
        self.met |= small
        return small <= self.fitting

    def send(self, record: Record) -> None:
        assert record.topic not in self.small - self.fitting, "a batch that the topic refuses"
        if len(self.open_records) + sum(map(len, self.committed)) == self.fails_at:
            raise ServiceError("gone")
        self.open_records.append(record)

    def end(self) -> None:
        assert self.open_records, "an empty transaction"
        self.committed.append(self.open_records)
        self.open_records = []


class OneTopic:
    """Every message to one partition."""

    def records(self, messages: Iterable[Message]) -> list[Record]:
        return [Record("t", 0, message.key, message.value) for message in messages]


def schemas() -> dict[bytes, SchemaEntry]:
    return {
        key: entry_from_record(key, value)
        for table in recorded(KIND).tables().values()
        for key, value in schema_records(Encoder(table, "p"), "t")
    }


def outlet_of(
    transactions: MemoryTransactions,
    bounds: Bounds,
    most: int = 5000,
    pace: Pace | None = None,
    routing: OneTopic | None = None,
) -> KafkaOutlet:
    ticks = iter(range(10**9))
    return KafkaOutlet(
        transactions,
        routing or OneTopic(),
        Transcoder("p"),
        SchemaHistory().learn(recorded(KIND).tables().values())[0],
        Source("h", "dc", NO_POSITION, 0, 0, origin=Origin.REPLAY),
        bounds,
        pace=pace or Pace(10, 600, lambda: 0.0),
        clock=lambda: 0.0,
        milliseconds=lambda: next(ticks),
        limit=most,
    )


def run(directory: Path, bounds: Bounds, most: int = 5000) -> tuple[list[list[Change]], Replayed]:
    """The changes of each transaction."""
    recorded(KIND).unpack(directory)
    transactions, outcome = MemoryTransactions(), Replayed()
    outlet = outlet_of(transactions, bounds, most)
    replay(list_segments(directory).segments, outlet, bounds, outcome, epoch=3)
    assert not transactions.open_records
    known = schemas()
    found = [[decode(record.value, known) for record in records] for records in transactions.committed]
    assert outcome.changes == sum(map(len, found))
    assert outlet.committed is not None
    return found, outcome


@pytest.mark.slow
def test_changes_are_the_agent_s_with_another_origin(tmp_path: Path) -> None:
    """The same digests in the same order, in the log epoch that was named."""
    found, outcome = run(tmp_path, Bounds())
    changes = [change for batch in found for change in batch]
    expected = changes_in(KIND)
    (segment,) = (files.id for files in list_segments(tmp_path).segments)
    assert [change.digest for change in changes] == [change.digest for change in expected]
    for change, first in zip(changes, expected, strict=True):
        assert change.source is not None
        assert first.source is not None
        position = Position(3, segment, first.source.position.offset)
        again = replace(first.source, host="h", datacenter="dc", position=position, origin=Origin.REPLAY)
        assert replace(change.source, seen=first.source.seen) == again
    assert outcome == Replayed(outcome.mutations, len(changes), 1)


def test_a_transaction_ends_with_a_mutation(tmp_path: Path) -> None:
    """At the first end of one that is at or behind the limit."""
    found, _ = run(tmp_path, Bounds(), most=3)
    places = [{c.source.position for c in batch if c.source is not None} for batch in found]
    assert len(places) > 10
    assert sum(map(len, places)) == len(set().union(*places))
    for batch in found[:-1]:
        last = batch[-1].source
        assert last is not None
        assert len(batch) >= 3 > sum(c.source is None or c.source.position != last.position for c in batch)


@pytest.mark.parametrize("closed", ["", "\nCOMPLETED"], ids=["open", "closed"])
@pytest.mark.parametrize("lost", [0, 1])
def test_a_copy_that_lacks_what_its_index_released_is_damaged(tmp_path: Path, lost: int, closed: str) -> None:
    """Its end looks clean, as of one that was copied before its index: what is missing is told."""
    recorded(KIND).unpack(tmp_path)
    (files,) = list_segments(tmp_path).segments
    assert files.log is not None
    with closing(OpenSegment(files.log, files.id, 1)) as segment:
        while segment.read(100, None)[0]:
            pass
        end = segment.logical
    files.log.with_name(f"{files.log.stem}_cdc.idx").write_text(f"{end + lost}{closed}")
    outcome = Replayed()
    replay(list_segments(tmp_path).segments, outlet_of(MemoryTransactions(), Bounds()), Bounds(), outcome)
    words = f"{files.log.name}:{end}: the index released {end + 1}, the segment ends here; nothing behind it was read"
    assert outcome.damaged == [words] * lost


class Narrow(OneTopic):
    """A topic that does not take the third mutation."""

    def __init__(self) -> None:
        self._asked = 0

    def records(self, messages: Iterable[Message]) -> list[Record]:
        records = super().records(messages)
        self._asked += bool(records)
        if self._asked == 3 and records:
            raise TooLargeError("a change is too large")
        return records


def test_a_change_that_its_topic_does_not_take_is_left_out(tmp_path: Path) -> None:
    """And told, as one that cannot be decoded; all behind it is replayed."""
    _, every = run(tmp_path, Bounds())
    transactions, outcome = MemoryTransactions(), Replayed()
    outlet = outlet_of(transactions, Bounds(), routing=Narrow())
    replay(list_segments(tmp_path).segments, outlet, Bounds(), outcome, epoch=3)
    ((reason, (_, count)),) = outcome.left_out.items()
    assert (reason, count, outcome.mutations) == ("a change is too large", 1, every.mutations)
    assert 0 < every.changes - outcome.changes < 10
    assert sum(map(len, transactions.committed)) == outcome.changes


@pytest.mark.slow
def test_tables_and_times_bound_it(tmp_path: Path) -> None:
    """Index and count stay those of the whole mutation."""
    whole = {change.digest: change for change in changes_in(KIND)}
    times = sorted(record_times(change)[0] for change in whole.values())
    low = times[len(times) // 2]
    table = next(iter(whole.values())).table
    bounds = Bounds(tables=frozenset({table.id}), earliest=low)
    found, _ = run(tmp_path, bounds)
    expected = [
        digest for digest, change in whole.items() if change.table.id == table.id and record_times(change)[0] >= low
    ]
    changes = [change for batch in found for change in batch]
    assert [change.digest for change in changes] == expected
    for change in changes:
        first = whole[change.digest].source
        assert change.source is not None
        assert first is not None
        assert (change.source.index, change.source.count) == (first.index, first.count)


@pytest.mark.slow
@pytest.mark.parametrize("most_bytes", [1, 1 << 24], ids=["cut by bytes", "cut by changes"])
@pytest.mark.parametrize("fails_at", range(20, 24))
def test_after_a_failure_it_is_known_how_far_it_came(tmp_path: Path, fails_at: int, most_bytes: int) -> None:
    """From there on it goes on: each change is committed once."""
    recorded(KIND).unpack(tmp_path)
    segments = list_segments(tmp_path).segments
    failing, pace = MemoryTransactions(fails_at=fails_at), Pace(10, 600, lambda: 0.0)
    pace.limit = most_bytes
    outlet = outlet_of(failing, Bounds(), most=3, pace=pace)
    with pytest.raises(ServiceError):
        replay(segments, outlet, Bounds(), Replayed())
    assert outlet.committed is not None
    rest = MemoryTransactions()
    bounds = Bounds(since=(outlet.committed.segment, outlet.committed.offset))
    replay(segments, outlet_of(rest, bounds), bounds, Replayed())
    known = schemas()
    digests = [decode(r.value, known).digest for batch in (*failing.committed, *rest.committed) for r in batch]
    assert digests == [change.digest for change in changes_in(KIND)]


def test_the_write_time_is_read_from_the_head_of_a_message() -> None:
    """And a message that is cut is said to be."""
    change = next(iter(changes_in(KIND)))
    message = Encoder(change.table, "p").value(change)
    assert written_of(message) == record_times(change)[0]
    for size in range(11):
        with pytest.raises(TruncatedError):
            written_of(message[:size])


def test_a_topic_that_takes_smaller_batches_gets_such(tmp_path: Path) -> None:
    """It is met in the middle of others' changes, which are committed before a new producer makes them."""

    class TwoTopics(OneTopic):
        """The fourth mutation and those behind it go into a topic of their own."""

        mutations = 0

        def records(self, messages: Iterable[Message]) -> list[Record]:
            found = super().records(messages)
            self.mutations += bool(found)
            topic = "t" if self.mutations < 4 else "small"
            return [Record(topic, record.partition, record.key, record.value) for record in found]

    recorded(KIND).unpack(tmp_path)
    transactions, outcome = MemoryTransactions(small=frozenset({"small"})), Replayed()
    outlet = outlet_of(transactions, Bounds(), routing=TwoTopics())
    replay(list_segments(tmp_path).segments, outlet, Bounds(), outcome, epoch=3)
    assert [{record.topic for record in records} for records in transactions.committed] == [{"t"}, {"small"}]
    assert sum(map(len, transactions.committed)) == outcome.changes
    assert transactions.opened == 1
