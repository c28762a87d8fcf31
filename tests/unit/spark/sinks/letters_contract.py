"""The contract of sinks whose dead letters can be written again: a class of tests that every one of them runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, ClassVar, Protocol, cast
from uuid import UUID

import pytest

from tailrace_schemas.avro import Encoder, SchemaEntry
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.batch.delivery import DeadLetter, Piece, RecordId
from tailrace_spark.job import replay as letters
from tailrace_spark.job.replay import ReplayCounts, all_letters, replay_letters
from tailrace_spark.sinks.protocol import DeadLetterSink, ReachableSink
from tailrace_spark.source.decode import pieces
from tests.held import Record, hold
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import Crash
from tests.unit.tables import table

PLAIN = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="plain", table_id=UUID(int=70))
LOG = Log(PLAIN)
ENCODER = Encoder(PLAIN, "t")
TOPIC = "t.shop.plain"
SCHEMAS = {
    ENCODER.schema_id: SchemaEntry(schema_id=ENCODER.schema_id, topic=TOPIC, table=PLAIN, avro=ENCODER.schema_text)
}
NONE: Mapping[bytes, SchemaEntry] = {}

Pieces = Callable[[Any], Iterable[Piece]]
understood: Pieces = partial(pieces, schemas=SCHEMAS)


def nowhere(_: RecordId) -> None:
    """No topic has the bytes any more."""


def letter(number: int) -> DeadLetter:
    """A change of the row `number` that was not understood when it came; they spread over three partitions."""
    value = ENCODER.value(LOG.insert((number,), (), 10, v=f"v{number}"))
    return DeadLetter(RecordId(TOPIC, number % 3, number, ENCODER.schema_id), "what schema?", value)


LETTERS = tuple(letter(number) for number in range(7))
IN_ORDER = sorted(LETTERS, key=lambda one: one.record_id.key)


def set_aside(found: Iterable[Piece], *numbers: int) -> Iterator[Piece]:
    """The pieces; the changes of these rows are dead letters of them."""
    for piece in found:
        again = [one for one in piece.changes if one.record_id.offset in numbers]
        kept = tuple(one for one in piece.changes if one.record_id.offset not in numbers)
        yield Piece(kept, (*piece.dead_letters, *(DeadLetter(one.record_id, "no more", one.message) for one in again)))


class Lettered(Protocol):
    """One store of the sink under test, and what its readers see."""

    exactly_once: bool
    """Whether a reader sees one copy of each change; else each says its place, and comes once or more."""

    def open(self, dies_after: int | None = None) -> DeadLetterSink:
        """A sink as a new process has it; it raises Crash or ServiceError after so many steps towards the store."""

    def ids(self) -> Sequence[int]:
        """`id` of every row or change of `shop.plain` that a reader sees, each copy."""

    def set_format(self, number: int | None) -> None:
        """Give the letters that are there the number of another version's form; None: as ones that noted none."""


class LettersContract:
    """Give `stores` as a fixture: each call makes a new, empty store. Letters are replayed two at a time."""

    sink: ClassVar[str]
    overtaken: type[Exception] = ServiceError
    """What a replay may end with where a stream writes meanwhile; then it is run again."""
    waits_for_nobody: bool = True
    """Whether a stream may write while a replay has begun; else before and behind each part of it."""
    refused_at_start: bool = True
    """Whether a stream looks at the letters' form when it starts; else each letter has its own."""
    again: Callable[..., Iterator[ReplayCounts]] = staticmethod(replay_letters)
    """What the command calls for a sink of this kind."""

    @pytest.fixture(autouse=True)
    def _held(self, record_property: Record) -> None:
        hold(record_property, self.sink, "letters", "")

    def replay(self, store: Lettered, pieces_of: Pieces = understood, dies_after: int | None = None) -> ReplayCounts:
        """A command of its own."""
        with closing(store.open(dies_after)) as sink:
            return sum(self.again(sink, pieces_of, nowhere, per_batch=2), ReplayCounts())

    def waiting(self, store: Lettered) -> list[DeadLetter]:
        """As `tailrace sink-letters list` has them."""
        with closing(store.open()) as sink:
            return list(all_letters(sink))

    def deliver(self, store: Lettered, *some: DeadLetter) -> None:
        """A stream's batch of records that are no changes."""
        with closing(store.open()) as sink:
            sink.write([Piece((), tuple(some))])

    def deliver_understood(self, store: Lettered, *some: DeadLetter) -> None:
        """A stream's batch of the same records, which are changes now."""
        with closing(store.open()) as sink:
            sink.write(understood(letters.records_of(some)))

    def require(self, store: Lettered, *wanted: int) -> None:
        """That readers see these rows, and each once where the kind can tell."""
        found = sorted(store.ids())
        assert (found if store.exactly_once else sorted(set(found))) == sorted(wanted)

    def test_they_are_listed_in_order_with_their_bytes(self, stores: Callable[[], Lettered]) -> None:
        store = stores()
        assert self.waiting(store) == []
        self.deliver(store, *LETTERS)
        found = self.waiting(store)
        assert found == IN_ORDER
        assert [one.message for one in found] == [one.message for one in IN_ORDER]
        assert [one.record_id.schema_id for one in found] == [ENCODER.schema_id] * 7

    @pytest.mark.slow
    @pytest.mark.promise("upgrade.records")
    def test_letters_without_a_number_are_read(self, stores: Callable[[], Lettered]) -> None:
        """Versions before there was one wrote them, and the same otherwise."""
        store = stores()
        self.deliver(store, *LETTERS[:4])
        store.set_format(None)
        assert {one.record_id.offset for one in self.waiting(store)} == {0, 1, 2, 3}
        self.deliver(store, *LETTERS[4:])
        assert self.waiting(store) == IN_ORDER
        assert self.replay(store) == ReplayCounts(taken=7)
        self.require(store, *range(7))

    @pytest.mark.promise("upgrade.later-records")
    def test_letters_of_a_later_version_are_refused_before_anything_is_written(
        self, stores: Callable[[], Lettered]
    ) -> None:
        store = stores()
        self.deliver(store, *LETTERS)
        store.set_format(2)
        works: list[Callable[[Lettered], object]] = [self.waiting, self.replay]
        for work in [*works, self.start] if self.refused_at_start else works:
            with pytest.raises(SettingsError, match=r"newer Tailrace .*format 2; this one reads up to 1.*Install that"):
                work(store)
        assert store.ids() == []
        store.set_format(1)
        assert self.waiting(store) == IN_ORDER

    def start(self, store: Lettered) -> None:
        """As a stream does before it reads anything."""
        with closing(store.open()) as sink:
            cast("ReachableSink", sink).reach()

    @pytest.mark.slow
    def test_what_is_understood_now_is_taken_in_and_goes(self, stores: Callable[[], Lettered]) -> None:
        store = stores()
        self.deliver(store, *LETTERS)
        with closing(store.open()) as sink:
            parts = list(self.again(sink, understood, nowhere, per_batch=2))
        assert parts == [*[ReplayCounts(taken=2)] * 3, ReplayCounts(taken=1)]
        self.require(store, *range(7))
        assert self.waiting(store) == []
        assert self.replay(store) == ReplayCounts()
        self.require(store, *range(7))

    @pytest.mark.slow
    def test_what_is_refused_again_stays_a_letter(self, stores: Callable[[], Lettered]) -> None:
        store = stores()
        self.deliver(store, *LETTERS)
        assert self.replay(store, partial(pieces, schemas=NONE)) == ReplayCounts(again=7)
        assert [one.record_id for one in self.waiting(store)] == [one.record_id for one in IN_ORDER]
        for _ in range(2):
            self.replay(store, lambda records: set_aside(understood(records), 2, 5))
        self.require(store, 0, 1, 3, 4, 6)
        found = self.waiting(store)
        assert [one.record_id.offset for one in found] == [2, 5]
        assert [one.message for one in found] == [LETTERS[2].message, LETTERS[5].message]
        assert self.replay(store) == ReplayCounts(taken=2)
        self.require(store, *range(7))

    def test_each_of_a_partition_in_a_row_is_met(self, stores: Callable[[], Lettered]) -> None:
        """Where a part of the replay ends, the next begins with the record behind it."""
        store = stores()
        self.deliver(store, *(replace(letter(n), record_id=RecordId(TOPIC, 0, n, ENCODER.schema_id)) for n in range(5)))
        assert self.replay(store, partial(pieces, schemas=NONE)) == ReplayCounts(again=5)

    def test_one_without_its_bytes_is_left(self, stores: Callable[[], Lettered]) -> None:
        """As with masks, where its topic has forgotten it."""
        store = stores()
        self.deliver(store, LETTERS[0], replace(LETTERS[1], message=b""))
        assert self.replay(store) == ReplayCounts(taken=1, left=1)
        self.require(store, 0)
        assert [one.record_id.offset for one in self.waiting(store)] == [1]

    @pytest.mark.slow
    def test_a_crash_at_any_step_loses_and_doubles_nothing(self, stores: Callable[[], Lettered]) -> None:
        for step in count():
            store = stores()
            self.deliver(store, *LETTERS[:3])
            died = True
            with suppress(Crash, ServiceError):
                self.replay(store, lambda records: set_aside(understood(records), 2), dies_after=step)
                died = False
            left = {one.record_id.offset for one in self.waiting(store)}
            assert left | set(store.ids()) == {0, 1, 2}, f"died after {step} steps"
            assert 2 in left, f"died after {step} steps"
            self.replay(store)
            assert self.waiting(store) == [], f"died after {step} steps"
            self.require(store, 0, 1, 2)
            if not died:
                assert step > 1
                return

    @pytest.mark.slow
    def test_a_stream_delivers_again_what_was_replayed(self, stores: Callable[[], Lettered]) -> None:
        """It was not finished with the batch when it ended; the letters that it makes again are no changes more."""
        store = stores()
        self.deliver(store, *LETTERS[:3])
        assert self.replay(store) == ReplayCounts(taken=3)
        self.deliver(store, *LETTERS[:3])
        self.require(store, 0, 1, 2)
        self.replay(store)
        self.require(store, 0, 1, 2)
        assert self.waiting(store) == []

    @pytest.mark.slow
    def test_a_stream_delivers_again_what_was_replayed_and_understands_it(self, stores: Callable[[], Lettered]) -> None:
        """As it would without its checkpoint, now that the schema is there."""
        store = stores()
        self.deliver(store, *LETTERS[:3])
        assert self.replay(store) == ReplayCounts(taken=3)
        for _ in range(2):
            self.deliver_understood(store, *sorted(LETTERS[:4], key=lambda one: one.record_id.key))
            self.require(store, 0, 1, 2, 3)
        assert self.waiting(store) == []

    @pytest.mark.slow
    def test_a_stream_delivers_meanwhile(self, stores: Callable[[], Lettered]) -> None:
        """What it delivered before, and more letters; another replay takes what this one did not meet."""
        store = stores()
        self.deliver(store, *LETTERS[:4])
        written = 0

        def stream() -> None:
            nonlocal written
            self.deliver(store, *LETTERS[:4])
            self.deliver(store, LETTERS[4 + written])
            written += 1

        def inside(records: Any) -> Iterator[Piece]:
            stream()
            yield from understood(records)

        def before(records: Any) -> Iterable[Piece]:
            stream()
            return understood(records)

        with suppress(self.overtaken):
            self.replay(store, inside if self.waits_for_nobody else before)
        while self.waiting(store):
            self.replay(store)
        assert written >= 1
        self.require(store, *range(4 + written))

    @pytest.mark.slow
    @pytest.mark.parametrize("inside", ["the stream's batch", "the replay"])
    def test_a_stream_that_understands_them_delivers_meanwhile(
        self, stores: Callable[[], Lettered], inside: str
    ) -> None:
        """As it would without its checkpoint: what the one writes into was opened before the other wrote."""
        if not self.waits_for_nobody:
            return  # they take turns
        store, some = stores(), LETTERS[:2]
        # Their table is there, and has nothing of their partitions.
        self.deliver_understood(store, replace(letter(9), record_id=RecordId(TOPIC, 3, 9, ENCODER.schema_id)))
        self.deliver(store, *some)

        def then(found: Iterable[Piece], do: Callable[[], object]) -> Iterator[Piece]:
            yield from found
            with suppress(self.overtaken):
                do()

        with suppress(self.overtaken):
            if inside == "the replay":
                with closing(store.open()) as sink:
                    sink.write(then(understood(letters.records_of(some)), partial(self.replay, store)))
            else:
                again = partial(self.deliver_understood, store, *some)
                self.replay(store, lambda records: then(understood(records), again))
        self.deliver_understood(store, *some)
        while self.waiting(store):
            self.replay(store)
        self.require(store, 0, 1, 9)
