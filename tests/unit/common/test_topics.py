"""The reader of `.schemas`: what is no schema is passed over, and said once."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.history.events import EventKind, SchemaEvent, Subject, encode_event, event_key
from tailrace_common.kafka import Record
from tailrace_common.topics import GenerationReader, SchemaReader, in_order, places
from tailrace_schemas.avro import Encoder, schema_records
from tailrace_schemas.errors import ServiceError, UnsupportedError
from tailrace_schemas.generation_records import Proposal, encode_proposal
from tailrace_schemas.position import Position
from tailrace_schemas.ring import Node, Ring
from tailrace_schemas.streams import LEEWAY_MS, Mark, build_generation
from tailrace_schemas.table import Table
from tests.support.partition import Partition
from tests.unit.tables import table

GOOD = schema_records(Encoder(table({"k": "int"}), "p"), "p.ks.t")
BAD = [
    (b"12345678", b'{"definition": {"format": 2, "id": 5}, "part": "value", "topic": "t", "avro": {}, "format": 1}'),
    (b"23456789", b"[" * 100_000),
    (b"34567890", b"\xff"),
    (b"short", GOOD[0][1]),
    (b"45678901", b"\x1f\x8b"),
]
X, Y, Z = (
    table({"k": "int"}, {}, {}, {"v": "int"}, table_id=UUID(text))
    for text in (
        "2be43760-e57f-11f1-8599-73518cff440e",
        "1b255f4d-ef25-11ef-8e5c-9d0d1c0b8f00",  # of an earlier time
        "f47ac10b-58cc-4372-a567-0e02b2c3d479",  # of none
    )
)
CREATED, DROPPED = EventKind.CREATED, EventKind.DROPPED
Told = tuple[str, EventKind, Table, int]
"""Host, what happened, to which table, and when."""
NOW = 1_760_000_000_000
RING = Ring((Node("a", "dc1", (0,)),))


@pytest.mark.promise("agent.foreign-records")
def test_a_malformed_schema_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    """The others are read, and the log has its offset and what it means."""
    partition = Partition([*BAD, *GOOD])
    with caplog.at_level(logging.WARNING), SchemaReader({}, "p", partition=partition) as reader:
        reader.refresh()
        reader.refresh()
        assert set(reader) == {key for key, _ in GOOD}
        assert reader.malformed == len(BAD)
    assert [f"offset {offset} " in one.getMessage() for offset, one in enumerate(caplog.records)] == [True] * len(BAD)
    assert b"12345678".hex() in caplog.text
    assert "cannot be decoded until" in caplog.text


def test_a_schema_that_is_announced_again_has_the_later_offset() -> None:
    """It is the newest definition of its table once more. What it says stays, whatever comes under its id."""
    (value_id, value), (key_id, _) = GOOD
    partition = Partition(GOOD)
    with SchemaReader({}, "p", partition=partition) as reader:
        reader.refresh()
        first = reader[value_id]
        partition.append((value_id, value))
        partition.append((value_id, b"nonsense"))
        reader.refresh()
        assert (first.announced, reader[value_id].announced, reader[key_id].announced) == (0, 3, 1)
        assert reader[value_id].table is first.table
        assert reader.malformed == 0


def test_a_reader_that_comes_later_has_the_same_definitions() -> None:
    """Else a sink would make more of each with every stream that writes into it."""
    tables = []
    for _ in range(2):
        with SchemaReader({}, "p", partition=Partition(GOOD)) as reader:
            reader.refresh()
            tables.append(reader[GOOD[0][0]].table)
    assert tables[0] is tables[1]


def later(announced: Iterable[Table], events: Iterable[Told], *, epochs: bool = False) -> list[UUID]:
    """The ids of the tables in the order in which a reader has them, from definitions announced in that order."""
    definitions = [(value_id, value) for one in announced for (value_id, value), _ in [records_of(one)]]
    told = [
        (event_key(host, event), encode_event(host, event))
        for offset, (host, kind, of, when) in enumerate(events)
        for event in [
            SchemaEvent(
                position=Position(1, 1, offset), kind=kind, subject=Subject.TABLE, keyspace=of.keyspace, name=of.name,
                table=of, written=0 if epochs else when, metadata=when if epochs else None,
            )
        ]
    ]  # fmt: skip
    with SchemaReader({}, "p", ordered=True, partition=Partition(definitions), ddl=Partition(told)) as reader:
        reader.refresh()
        return [entry.table.id for entry in sorted(reader.values(), key=lambda entry: entry.announced)]


def records_of(one: Table) -> list[tuple[bytes, bytes]]:
    return schema_records(Encoder(one, "p"), "p.ks.t")


@pytest.mark.promise("sinks.later-table")
@pytest.mark.parametrize("epochs", [False, True])
@pytest.mark.parametrize("other", [Y, Z])
def test_a_host_that_lags_says_nothing_new(other: Table, epochs: bool) -> None:
    """It tells of the table that was dropped, and announces it, long after the others told of the DROP."""
    ahead = [("a", CREATED, X, 1), ("a", DROPPED, X, 5), ("a", CREATED, other, 6)]
    lagging = [("b", CREATED, X, 1), ("b", DROPPED, X, 5), ("b", CREATED, other, 6)]
    for behind in range(4):
        assert later([X, other, X], [*ahead, *lagging[:behind]], epochs=epochs) == [X.id, other.id]


def test_a_table_that_nobody_else_saw_is_not_the_later_one_for_being_told_of_late() -> None:
    """A node that joined knows the present table only; one that lags tells of a table that came and went before."""
    joined = [("a", CREATED, Y, 6)]
    lagging = [("b", CREATED, X, 1), ("b", DROPPED, X, 5)]
    assert later([Y, X], [*joined, *lagging]) == [X.id, Y.id]


def test_a_table_that_is_created_again_with_its_id_is_the_later_one() -> None:
    first = [("a", CREATED, X, 1), ("a", DROPPED, X, 2), ("a", CREATED, Y, 3)]
    assert later([X, Y], first) == [X.id, Y.id]
    again = [*first, ("a", DROPPED, Y, 4), ("a", CREATED, X, 5)]
    assert later([X, Y], again) == [Y.id, X.id]
    assert later([X, Y], [*again, *(("b", *one[1:]) for one in first)]) == [Y.id, X.id]


def test_without_ddl_the_table_announced_first_is_the_earlier_one() -> None:
    """Tables that were there before the agents have no statement."""
    assert later([X, Y, X], []) == [X.id, Y.id]
    assert later([Y, X, Y], [("a", DROPPED, Y, 9)]) == [Y.id, X.id]


def test_what_a_reader_gave_before_stays_in_order() -> None:
    """A sink notes when a table was announced; no later reading may put an earlier table's beyond that."""
    (x_id, x), _ = records_of(X)
    (y_id, y), _ = records_of(Y)
    partition = Partition([(x_id, x), (y_id, y)])
    with SchemaReader({}, "p", ordered=True, partition=partition, ddl=Partition([])) as reader:
        reader.refresh()
        noted = reader[y_id].announced
        for _ in range(3):
            partition.append((x_id, x))
            reader.refresh()
            assert reader[x_id].announced < noted == reader[y_id].announced


def test_foreign_records_among_the_ddl_say_nothing() -> None:
    (x_id, x), _ = records_of(X)
    (y_id, y), _ = records_of(Y)
    foreign = [(b"k", value) for value in (b"", b"[]", b'{"subject": "table", "kind": "created"}', b"\xff")]
    with SchemaReader(
        {}, "p", ordered=True, partition=Partition([(x_id, x), (y_id, y)]), ddl=Partition(foreign)
    ) as reader:
        reader.refresh()
        assert reader[x_id].announced < reader[y_id].announced


statements = st.lists(st.tuples(st.sampled_from([X.id, Y.id, Z.id]), st.integers(1, 50)), min_size=1)


@given(statements, st.permutations([X.id, Y.id, Z.id]))
def test_the_last_statement_decides_whatever_was_announced_first(
    told: list[tuple[UUID, int]], order: list[UUID]
) -> None:
    last = {table_id: (False, when) for table_id, when in sorted(told, key=lambda one: one[1])}
    known = [table_id for table_id in order if table_id in last]
    found = in_order({table_id: offset for offset, table_id in enumerate(known)}, last)
    assert [last[table_id][1] for table_id in found] == sorted(when for _, when in last.values())


def test_a_later_table_that_was_announced_first_counts_from_behind_all_of_the_earlier_one() -> None:
    """As where an agent that is ahead tells of both before one that lags."""
    earlier, later = UUID(int=9), UUID(int=1)
    last = {earlier: (False, 1), later: (False, 2)}
    assert places([(later, 0), (earlier, 5), (earlier, 7)], last) == {earlier: (5, 8), later: (8, None)}


class MemoryPartition:
    """A partition whose records are appended at a given time."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.unread = 0
        self.closed = False

    def append(self, key: bytes, value: bytes, at: int = NOW) -> None:
        self.records.append(Record(len(self.records), at, key, value))

    def read_to_end(self) -> Iterator[Record]:
        """What was not read yet."""
        while self.unread < len(self.records):
            self.unread += 1
            yield self.records[self.unread - 1]

    def close(self) -> None:
        self.closed = True


def _publish(partition: MemoryPartition, n: int, timestamp: int, predecessor: int | None = None) -> None:
    generation = build_generation(RING, timestamp=timestamp, seed=n)
    proposal = Proposal(uuid=UUID(int=n), predecessor=predecessor, ring=RING, generation=generation)
    for key, value in encode_proposal(proposal):
        partition.append(key, value)


def test_an_empty_topic_has_no_generation() -> None:
    reader = GenerationReader(MemoryPartition(), now=lambda: 0.0)
    assert reader.refresh() == ()
    assert reader.latest is None
    with pytest.raises(ServiceError, match="no valid generation"):
        reader.operating(0)
    with pytest.raises(ServiceError, match="no valid generation is published yet"):
        reader.refresh_some()


def test_refresh_takes_what_is_new() -> None:
    partition = MemoryPartition()
    reader = GenerationReader(partition, now=lambda: NOW / 1000)
    _publish(partition, 1, NOW)
    assert [found.timestamp for found in reader.refresh()] == [NOW]
    assert partition.unread == 2
    partition.append(b"noise", b"")
    _publish(partition, 2, NOW + 65_000, NOW)
    _publish(partition, 3, NOW + 65_001, NOW)
    assert reader.published == reader.refresh()[:1]
    assert [found.uuid.int for found in reader.published] == [1, 2]
    assert reader.latest is reader.published[1]


def test_a_reader_gets_past_no_generation_of_another_version() -> None:
    """Whoever asks again would assign by the generation before."""
    partition = MemoryPartition()
    reader = GenerationReader(partition, now=lambda: NOW / 1000)
    _publish(partition, 1, NOW)
    partition.append(str(UUID(int=2)).encode(), b'{"version": 3}')
    _publish(partition, 3, NOW + 65_000, NOW)
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="format 3"):
            reader.refresh()
    assert [found.uuid.int for found in reader.published] == [1]


def test_write_times_later_than_reading_and_leeway_are_ahead() -> None:
    clock = iter([NOW / 1000, NOW / 1000 + 10])
    partition = MemoryPartition()
    _publish(partition, 1, NOW)
    reader = GenerationReader(partition, now=lambda: next(clock))
    reader.refresh()
    (first,) = reader.published
    written = (NOW + LEEWAY_MS + 1) * 1000
    assert reader.operating(written - 1) == (first, None)
    assert reader.operating(written) == (first, Mark.AHEAD)
    assert reader.operating(NOW * 1000 - 1) == (first, Mark.BEFORE_FIRST)
    reader.refresh()
    assert reader.operating(written) == (first, None)


def test_what_is_known_counts_from_before_the_reading() -> None:
    """A generation that is announced while we read may be missed: the time of its end would promise too much."""
    times = [NOW / 1000]

    class Slow(MemoryPartition):
        def read_to_end(self) -> Iterator[Record]:
            times[0] += 60
            return super().read_to_end()

    reader = GenerationReader(Slow(), now=lambda: times[0])
    reader.refresh()
    assert reader.known_until == NOW + LEEWAY_MS


def test_the_reader_closes_its_source() -> None:
    partition = MemoryPartition()
    with GenerationReader(partition):
        assert not partition.closed
    assert partition.closed
