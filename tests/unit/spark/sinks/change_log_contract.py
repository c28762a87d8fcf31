"""The contract of change-log sinks: a class of tests that every one of them runs against what it really writes to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import count
from typing import Any, ClassVar, Protocol
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace_schemas.avro import Encoder, SchemaEntry, decode
from tailrace_schemas.change import Change
from tailrace_schemas.change_json import ChangeForms
from tailrace_schemas.errors import ServiceError, TailraceError
from tailrace_schemas.streams import Assignment
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, RecordId, Summary
from tailrace_spark.rowstate.partition import Partition
from tailrace_spark.sinks.protocol import AGAIN, Sink, write_here
from tailrace_spark.source.readings import EVERY, of_readings
from tests.held import Record, hold
from tests.properties import examples
from tests.support.letters import MemoryLetters
from tests.support.shop import ORDERS, one_change
from tests.unit.spark.cassandra import Log, truncate
from tests.unit.spark.published import schemas_of
from tests.unit.spark.sinks.contract import broken
from tests.unit.spark.sinks.hostile import FIELDS, LONG_NAMES, NAMES, TYPES, WRITE_TIMES, extremes, row
from tests.unit.tables import table

PLAIN = table({"id": "int"}, regular={"v": "text", "w": "int"}, keyspace="shop", name="plain", table_id=UUID(int=7))
WIDE = table(
    {"id": "int"},
    regular={"v": "text", "w": "int", "x": "double", "y": "timestamp", "z": "frozen<map<text, int>>"},
    keyspace="shop",
    name="plain",
    table_id=UUID(int=7),
)
STREAM = Assignment(1_000, bytes(15) + b"\x01")
DAY = 86_400_000_000
"""In microseconds."""


class Crash(BaseException):
    """The sink's process dies here."""


class Outside(Protocol):
    """One store of the sink under test, and what its readers see."""

    exactly_once: bool
    """Whether a reader sees one copy of each record, or leaves out by itself what comes again."""

    def open(self, dies_after: int | None = None) -> Sink:
        """A sink as a new process has it; it raises Crash or ServiceError after so many steps towards the store."""

    def records(self) -> Sequence[Mapping[str, Any]]:
        """Every record that a reader sees, in its order."""

    @property
    def letters(self) -> MemoryLetters:
        """Where its sinks put what they set aside."""


class Topic:
    """Deliveries of one topic of three partitions: each key has its partition, offsets ascend."""

    def __init__(self, name: str = "t.shop.plain") -> None:
        self.name = name
        self._next = [0, 0, 0]

    def piece(self, *changes: Change, letters: int = 0) -> Piece:
        """The changes at their places, sorted by them; so many records more are no changes."""
        delivered = [
            Delivered(self.place(change.key), as_read(change), STREAM, message=b"\x00message") for change in changes
        ]
        dead = tuple(DeadLetter(self.place(b""), "no change", b"\x00bytes") for _ in range(letters))
        return Piece(tuple(sorted(delivered, key=lambda one: (one.record_id.partition, one.record_id.offset))), dead)

    def place(self, key: bytes | None) -> RecordId:
        """The next place of a key."""
        partition = sum(key or b"") % 3
        self._next[partition] += 1
        return RecordId(self.name, partition, self._next[partition] - 1, b"\x01\x02\x03\x04\x05\x06\x07\x08")


PARTITION: KafkaPartition = ("t.shop.plain", 0)


def in_turn(begin: int, end: int) -> Piece:
    """Changes of PARTITION, at the offsets from `begin` to before `end`, of three keys in turn."""
    changes = [(at, Log(PLAIN).update((at % 3,), (), at, w=at)) for at in range(begin, end)]
    return Piece(
        tuple(
            Delivered(RecordId(*PARTITION, at, bytes(8)), change, STREAM, message=b"\0message")
            for at, change in changes
        )
    )


_ENCODERS: dict[int, tuple[Encoder, dict[bytes, SchemaEntry]]] = {}


def as_read(change: Change) -> Change:
    """The change as a stream has it: through its message."""
    of = change.table
    if id(of) not in _ENCODERS:
        made = Encoder(of, "t")
        _ENCODERS[id(of)] = made, schemas_of(made)
    encoder, schemas = _ENCODERS[id(of)]
    return decode(encoder.value(change), schemas)


def deliver(outside: Outside, *pieces: Piece) -> Summary:
    """One micro-batch through a sink of its own."""
    with closing(outside.open()) as sink:
        return write_here(sink, pieces)


def place_of(record: Mapping[str, Any]) -> tuple[str, int, int]:
    return record["topic"], record["partition"], record["offset"]


def once(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """As a reader has them that leaves out what came before."""
    first: dict[tuple[str, int, int], Mapping[str, Any]] = {}
    for record in records:
        first.setdefault(place_of(record), record)
    return list(first.values())


def changes_of(records: Iterable[Mapping[str, Any]], *tables: Table) -> dict[tuple[str, int, int], Change]:
    """What the records say, by place; of a table's definitions the last that has all columns of a record is taken."""
    forms = ChangeForms()
    found: dict[tuple[str, int, int], Change] = {}
    for record in records:
        fits = [of for of in tables if str(of) == record["table"]]
        if len(fits) > 1:
            fits = [of for of in fits if {*record["columns"]} <= {column.name for column in of.columns}]
        found[place_of(record)] = forms.of(fits[-1]).read(record)
    return found


def delivered_by(*pieces: Piece) -> dict[tuple[str, int, int], Change]:
    return {
        (one.record_id.topic, one.record_id.partition, one.record_id.offset): one.change
        for piece in pieces
        for one in piece.changes
    }  # fmt: skip


def require_out(outside: Outside, *pieces: Piece, why: str = "") -> Sequence[Mapping[str, Any]]:
    """That readers have the changes of these pieces, once where the sink says so; what they have."""
    records = outside.records()
    assert changes_of(once(records), PLAIN) == delivered_by(*pieces), why
    if outside.exactly_once:
        assert len(records) == len(once(records)), why
    return records


def require_order(records: Iterable[Mapping[str, Any]]) -> None:
    """Of each key's records, each is further on in its partition than the one before."""
    last: dict[str, int] = defaultdict(lambda: -1)
    for record in once(records):
        key = f"{record['table']} {record['key'] and sorted(record['key'].items())}"
        assert record["offset"] > last[key], f"{place_of(record)} came after offset {last[key]} of the same key"
        last[key] = record["offset"]


def batches(topic: Topic) -> list[list[Piece]]:
    """Three micro-batches, of several pieces, keys and days, with dead letters in the second."""
    log = Log(PLAIN)
    first = [log.insert((number,), (), DAY + number, v=f"first {number}") for number in range(7)]
    second = [log.update((number % 4,), (), 2 * DAY + number, w=number) for number in range(9)]
    third = [log.delete((number,), (), 3 * DAY) for number in range(3)]
    return [
        [topic.piece(*first)],
        [topic.piece(*second[:5], letters=1), topic.piece(*second[5:])],
        [topic.piece(*third)],
    ]


class ChangeLogContract:
    """Give `stores` as a fixture: each call makes a new, empty store."""

    sink: ClassVar[str]
    server_name: ClassVar[str]
    """What it is on, with the version; or else the fixture `server` says that."""

    @pytest.fixture
    def server(self) -> str:
        return self.server_name

    @pytest.fixture(autouse=True)
    def _held(self, server: str, record_property: Record) -> None:
        hold(record_property, self.sink, "change log", server)

    def test_every_change_goes_out_with_its_place(self, stores: Callable[[], Outside]) -> None:
        outside, topic = stores(), Topic()
        log = Log(PLAIN)
        piece = topic.piece(log.insert((1,), (), 10, v="é\n\u2028", w=-5), log.delete((1,), (), 11), letters=1)
        assert deliver(outside, piece) == Summary(changes=2, rows=2, dead_letters=1)
        records = once(outside.records())
        assert changes_of(records, PLAIN) == delivered_by(piece)
        assert {record["schema"] for record in records} == {"0102030405060708"}
        assert {(record["generation"], record["stream_id"]) for record in records} == {(1_000, STREAM.stream_id.hex())}

    @pytest.mark.promise("sinks.dead-letters")
    def test_letters_are_kept_before_their_batch_counts(self, stores: Callable[[], Outside]) -> None:
        """Else a batch that comes again, of which what is out is left out, would set nothing aside any more."""
        outside, topic, log = stores(), Topic(), Log(PLAIN)
        piece = topic.piece(log.insert((1,), (), 1, v="a"), log.insert((2,), (), 1, v="b"), letters=1)
        with outside.letters.shut(), pytest.raises(ServiceError, match="Kafka does not answer"):
            deliver(outside, piece)
        deliver(outside, piece)
        assert [(one.reason, one.message) for one in outside.letters.all] == [("no change", b"\0bytes")]
        require_out(outside, piece)

    @pytest.mark.promise("sinks.dead-letters")
    def test_what_was_set_aside_is_written_again_though_its_batch_is_out(self, stores: Callable[[], Outside]) -> None:
        """With its own place, beside a stream; a replay that was cut off writes it once more."""
        outside, topic, log = stores(), Topic(), Log(PLAIN)
        first = topic.piece(log.insert((1,), (), 1, v="a"), log.insert((2,), (), 1, v="b"))
        aside, second = first.changes[0], topic.piece(log.insert((1,), (), 2, v="c"))
        letter = DeadLetter(aside.record_id, "why", aside.message)
        deliver(outside, Piece(first.changes[1:], (letter,)), second)
        for _ in range(2):
            with closing(outside.open()) as sink:
                assert write_here(sink, [Piece((aside,))], AGAIN).dead_letters == 0
        third = topic.piece(log.insert((2,), (), 3, v="d"))
        deliver(outside, third)
        assert changes_of(once(outside.records()), PLAIN) == delivered_by(first, second, third)

    @pytest.mark.promise("sinks.one-table-alone")
    def test_an_error_of_any_type_is_one_table_s(self, stores: Callable[[], Outside]) -> None:
        """All other tables of the batch, and of those behind it, go out; what was set aside says which and why."""
        outside, topic, log = stores(), Topic(), Log(PLAIN)
        first = topic.piece(log.insert((1,), (), 1, v="a"), log.insert((2,), (), 1, v="b"))
        bad = Delivered(RecordId("t.shop.broken", 0, 0, b"12345678"), broken(), STREAM, message=b"\0message")
        second = topic.piece(log.insert((1,), (), 2, v="c"))
        done = deliver(outside, replace(first, changes=(bad, *first.changes)), second)
        assert done == Summary(4, 3, 1)
        assert done.refused.keys() == {"shop.broken"}
        third = topic.piece(log.insert((2,), (), 2, v="d"))
        deliver(outside, third)
        assert changes_of(once(outside.records()), PLAIN) == delivered_by(first, second, third)
        [letter] = outside.letters.all
        assert (letter.record_id.key, letter.message) == (("t.shop.broken", 0, 0), b"\0message")
        assert done.refused["shop.broken"] == letter.reason

    @pytest.mark.slow
    @pytest.mark.promise("lake.names")
    @pytest.mark.parametrize("what", [*NAMES, *FIELDS])
    def test_a_table_of_any_names_goes_out(self, stores: Callable[[], Outside], what: str) -> None:
        """Beside one of common names; also when columns and fields of other such names come behind it."""
        outside, topic = stores(), Topic()
        of, healthy = {**NAMES, **FIELDS}[what], Log(PLAIN).insert((1,), (), 1, v="a")
        pieces = [topic.piece(*row(of), healthy), topic.piece(*row(of, 100))]
        for piece in pieces:
            assert deliver(outside, piece) == Summary(len(piece.changes), len(piece.changes), 0)
        assert changes_of(once(outside.records()), of, PLAIN) == delivered_by(*pieces)

    @pytest.mark.promise("sinks.extreme-values")
    @pytest.mark.slow
    def test_values_at_the_ends_of_all_types_go_out(self, stores: Callable[[], Outside]) -> None:
        """Bit for bit, beside a table of common ones."""
        outside, topic, healthy = stores(), Topic(), Log(PLAIN).insert((1,), (), 1, v="a")
        piece = topic.piece(*extremes(), healthy)
        assert deliver(outside, piece) == Summary(len(piece.changes), len(piece.changes), 0)
        assert changes_of(once(outside.records()), TYPES, PLAIN) == delivered_by(piece)

    @pytest.mark.promise("sinks.one-table-alone")
    def test_the_longest_names_fit_and_are_told_apart(self, stores: Callable[[], Outside]) -> None:
        outside, tables = stores(), (*LONG_NAMES, PLAIN)
        piece = Topic().piece(*[Log(of).insert((1,), (), 1, v=of.name[-1]) for of in tables])
        assert deliver(outside, piece) == Summary(3, 3, 0)
        assert changes_of(once(outside.records()), *tables) == delivered_by(piece)

    @pytest.mark.promise("sinks.extreme-values")
    def test_write_times_at_the_ends_go_out(self, stores: Callable[[], Outside]) -> None:
        outside, topic, log = stores(), Topic(), Log(PLAIN)
        changes = [
            change
            for number, at in enumerate(WRITE_TIMES)
            for change in (log.insert((number,), (), at, v="a"), log.delete((number,), (), at))
        ]
        piece = topic.piece(*changes)
        assert deliver(outside, piece) == Summary(len(changes), len(changes), 0)
        assert changes_of(once(outside.records()), PLAIN) == delivered_by(piece)

    def test_an_empty_batch_is_nothing_and_it_may_be_closed_more_than_once(self, stores: Callable[[], Outside]) -> None:
        outside = stores()
        with closing(outside.open()) as sink:
            assert write_here(sink, []) == Summary()
            sink.close()
        assert list(outside.records()) == []

    @pytest.mark.slow
    def test_a_batch_that_comes_again_is_recognised(self, stores: Callable[[], Outside]) -> None:
        """With a restart in between, and once more after the batch behind it."""
        outside = stores()
        first, second, third = batches(Topic())
        for batch in (first, second, second, third):
            deliver(outside, *batch)
        with closing(outside.open()) as sink:
            write_here(sink, third)
        require_order(require_out(outside, *first, *second, *third))
        assert len(outside.letters.all) == 1

    @pytest.mark.slow
    def test_a_batch_may_come_again_with_more_behind_it(self, stores: Callable[[], Outside]) -> None:
        """As of a stream without its checkpoint: cut otherwise."""
        outside = stores()
        first, second, third = batches(Topic())
        deliver(outside, *first)
        deliver(outside, *first, *second, *third)
        require_out(outside, *first, *second, *third)

    @pytest.mark.promise("sinks.read-again")
    def test_what_another_reading_brings_goes_out_again(self, stores: Callable[[], Outside]) -> None:
        """Once for each reading, at places of its own, and so do dead letters."""
        outside, topic, log = stores(), Topic(), Log(PLAIN)
        piece = topic.piece(*(log.insert((number,), (), number, v="x") for number in range(4)), letters=1)
        readings: dict[str, str] = {}
        for name in ("", "one", "one", "two"):
            readings[EVERY] = name
            with closing(outside.open()) as sink:
                write_here(of_readings(sink, readings), [piece])
        records = outside.records()
        topics = [topic.name, f"{topic.name}@one", f"{topic.name}@two"]
        places = {place_of(record) for record in records}
        assert places == {(name, *place[1:]) for name in topics for place in delivered_by(piece)}
        assert [letter.record_id.topic for letter in outside.letters.all] == topics
        if outside.exactly_once:
            assert len(records) == len(places)

    @pytest.mark.slow
    def test_nothing_is_lost_by_a_crash_between_any_two_steps(self, stores: Callable[[], Outside]) -> None:
        for step in count():
            outside = stores()
            first, second, third = batches(Topic())
            deliver(outside, *first)
            died = self._dies(outside, second, step)
            deliver(outside, *second)
            deliver(outside, *third)
            require_order(require_out(outside, *first, *second, *third, why=f"died after {step} steps"))
            assert len(outside.letters.all) == 1
            if not died:
                assert step > 1
                return

    def _dies(self, outside: Outside, batch: list[Piece], step: int) -> bool:
        sink = outside.open(dies_after=step)
        try:
            write_here(sink, batch)
        except (Crash, ServiceError):
            return True
        finally:
            sink.close()
        return False

    @pytest.mark.promise("sink.successor")
    @pytest.mark.parametrize("at", range(3))
    def test_a_writer_that_was_stopped_in_a_batch_adds_nothing_to_what_its_heir_wrote(
        self, stores: Callable[[], Outside], at: int
    ) -> None:
        """Stopped before a piece, or before the commit; the heir's batch has what came meanwhile, too."""
        outside, topic = stores(), Topic()
        first, second, third = batches(topic)
        deliver(outside, *first)
        meanwhile = topic.piece(*(Log(PLAIN).update((number,), (), 2 * DAY + number, v="x") for number in range(4)))

        def stopped() -> Iterator[Piece]:
            yield from second[:at]
            deliver(outside, *second, *third, meanwhile)
            yield from second[at:]

        with closing(outside.open()) as sink, suppress(TailraceError):
            write_here(sink, stopped())
        deliver(outside, meanwhile)
        require_order(require_out(outside, *first, *second, *third, meanwhile))

    @pytest.mark.slow
    def test_a_batch_that_failed_goes_out_by_the_same_sink(self, stores: Callable[[], Outside]) -> None:
        """The stream holds it and tries again, without a restart."""
        outside = stores()
        first, second, _ = batches(Topic())
        with closing(outside.open(dies_after=2)) as sink:
            for _ in range(4):
                try:
                    write_here(sink, [*first, *second])
                except (Crash, ServiceError):
                    continue
                break
        deliver(outside, *first, *second)
        assert changes_of(once(outside.records()), PLAIN) == delivered_by(*first, *second)

    def test_definitions_may_change_within_a_batch(self, stores: Callable[[], Outside]) -> None:
        outside, topic = stores(), Topic()
        old, new = Log(PLAIN), Log(WIDE)
        entries = [{"key": "a", "value": 1}]
        pieces = [
            topic.piece(old.insert((1,), (), 1, v="a"), new.insert((1,), (), 2, x=0.1, y=2**62, z=entries)),
            topic.piece(old.insert((2,), (), 3, w=3)),
            topic.piece(new.insert((2,), (), 4, w=3, x=float("inf"), y=-1)),
        ]
        deliver(outside, *pieces)
        deliver(outside, topic.piece())
        found = changes_of(once(outside.records()), WIDE)
        wanted = delivered_by(*pieces)
        assert {place: (c.op, c.key, {(x.column.name, x.value) for x in c.cells}) for place, c in found.items()} == {
            place: (c.op, c.key, {(x.column.name, x.value) for x in c.cells}) for place, c in wanted.items()
        }

    def test_a_truncation_goes_out_in_its_place(self, stores: Callable[[], Outside]) -> None:
        outside, topic = stores(), Topic()
        log = Log(PLAIN)
        truncation = truncate(PLAIN, "a", 5_000_000)
        piece = topic.piece(log.insert((0,), (), 1, v="a"), truncation, log.insert((0,), (), 9_000_000, v="b"))
        deliver(outside, piece)
        records = once(outside.records())
        assert changes_of(records, PLAIN) == delivered_by(piece)
        assert [record["op"] for record in records] == ["insert", "truncate", "insert"]

    @pytest.mark.slow
    @settings(
        max_examples=examples(4),
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
    )
    @given(st.lists(one_change, min_size=1, max_size=12), st.integers(0, 11), st.booleans())
    def test_what_goes_out_replayed_is_the_row_state(
        self, stores: Callable[[], Outside], changes: list[Change], cut: int, again: bool
    ) -> None:
        outside, topic = stores(), Topic("t.shop.orders")
        first, second = topic.piece(*changes[:cut]), topic.piece(*changes[cut:])
        for piece in (first, first, second) if again else (first, second):
            deliver(outside, piece)
        wanted, found = Partition(), Partition()
        for change in changes:
            wanted.absorb(change)
        for change in changes_of(outside.records(), ORDERS).values():
            found.absorb(change)
        assert found == wanted
