"""Dead letters written again into a database: what is taken in goes, and all else stays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tailrace_schemas.avro import Encoder, SchemaEntry
from tailrace_schemas.change import Change
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.position import Position
from tailrace_spark.batch.delivery import DeadLetter, Piece, RecordId
from tailrace_spark.job.replay import Fetch, ReplayCounts, records_of, remove_letters, replay_letters
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.sql.sink import SqlSink
from tailrace_spark.source.decode import pieces
from tests.support.letters import MemoryLetters
from tests.unit.spark.cassandra import Log, truncate, with_source
from tests.unit.spark.published import schemas_of
from tests.unit.tables import table

PLAIN = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="plain", table_id=UUID(int=70))
ENCODER = Encoder(PLAIN, "t")
TOPIC = "t.shop.plain"
SCHEMAS = schemas_of(ENCODER, TOPIC)
NONE: Mapping[bytes, SchemaEntry] = {}
Pieces = Callable[[Any], Iterable[Piece]]
understood: Pieces = partial(pieces, schemas=SCHEMAS)


def letter(number: int) -> DeadLetter:
    """A change of the row `number` that was not understood when it came; they spread over three partitions."""
    value = ENCODER.value(Log(PLAIN).insert((number,), (), 10, v=f"v{number}"))
    return DeadLetter(RecordId(TOPIC, number % 3, number, ENCODER.schema_id), "what schema?", value)


LETTERS = tuple(letter(number) for number in range(7))


def set_aside(read: Iterable[Piece], *numbers: int) -> Iterator[Piece]:
    """The pieces; the changes of these rows are dead letters of them."""
    for piece in read:
        again = [change for change in piece.changes if change.record_id.offset in numbers]
        kept = tuple(change for change in piece.changes if change.record_id.offset not in numbers)
        yield Piece(kept, tuple(DeadLetter(change.record_id, "no more", change.message) for change in again))


class Place:
    """A database whose stream has set all letters aside."""

    def __init__(self, url: str, letters: Sequence[DeadLetter] = LETTERS) -> None:
        self.letters = MemoryLetters()
        self.url = url
        with closing(self.sink()) as sink:
            write_here(sink, [Piece((), tuple(letters))])

    def sink(self) -> SqlSink:
        return SqlSink(self.url, letters=self.letters)

    def replay(
        self, pieces_of: Pieces = understood, fetch: Fetch = lambda _: None, box: MemoryLetters | None = None
    ) -> list[ReplayCounts]:
        """A command of its own, two letters at a time."""
        with closing(self.sink()) as sink:
            return list(replay_letters(box or self.letters, sink, pieces_of, fetch, per_batch=2))

    def rows(self) -> list[int]:
        with closing(self.sink()) as sink:
            return sorted(int.from_bytes(row.row_key[0], "big") for row in sink.stored(PLAIN))

    def waiting(self) -> list[int]:
        return sorted(letter.record_id.offset for letter in self.letters.all)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(f"sqlite:///{tmp_path / 'sink.db'}")


@pytest.mark.promise("sinks.dead-letters")
def test_what_is_understood_now_is_taken_in_and_goes(place: Place) -> None:
    assert place.waiting() == [*range(7)]
    assert place.replay() == [*[ReplayCounts(taken=2)] * 3, ReplayCounts(taken=1)]
    assert (place.rows(), place.waiting()) == ([*range(7)], [])
    assert place.replay() == []


@pytest.mark.promise("sinks.dead-letters")
def test_what_is_refused_again_stays_a_letter(place: Place) -> None:
    assert sum(place.replay(partial(pieces, schemas=NONE)), ReplayCounts()) == ReplayCounts(again=7)
    done = place.replay(lambda records: set_aside(understood(records), 2, 5))
    assert sum(done, ReplayCounts()) == ReplayCounts(taken=5, again=2)
    assert (place.rows(), place.waiting()) == ([0, 1, 3, 4, 6], [2, 5])
    assert [letter.message for letter in place.letters.all] == [LETTERS[2].message, LETTERS[5].message]
    assert sum(place.replay(), ReplayCounts()) == ReplayCounts(taken=2)
    assert (place.rows(), place.waiting()) == ([*range(7)], [])


def test_what_filters_leave_out_goes(place: Place) -> None:
    assert sum(place.replay(lambda _: []), ReplayCounts()) == ReplayCounts(taken=7)
    assert (place.rows(), place.waiting()) == ([], [])


@pytest.mark.promise("sinks.dead-letters")
def test_one_without_its_bytes_is_read_from_its_topic_as_long_as_that_has_it(tmp_path: Path) -> None:
    """As with masks."""
    place = Place(f"sqlite:///{tmp_path / 'sink.db'}", [replace(letter(number), message=b"") for number in (0, 1)])
    topic = {LETTERS[0].record_id: LETTERS[0].message}
    done = place.replay(fetch=topic.get)
    assert done == [ReplayCounts(taken=1, left=1)]
    assert (place.rows(), place.waiting()) == ([0], [1])


@pytest.mark.promise("sinks.dead-letters")
def test_one_of_a_later_reading_is_read_from_its_topic_too(tmp_path: Path) -> None:
    place_of_reading = replace(LETTERS[0].record_id, topic=f"{TOPIC}@5f0c9d1e2a3b")
    place = Place(f"sqlite:///{tmp_path / 'sink.db'}", [replace(LETTERS[0], record_id=place_of_reading, message=b"")])
    assert place.replay(fetch={LETTERS[0].record_id: LETTERS[0].message}.get) == [ReplayCounts(taken=1)]
    assert place.rows() == [0]


@pytest.mark.promise("sinks.dead-letters")
def test_a_truncation_takes_nothing_that_was_written_since_it_was_set_aside(tmp_path: Path) -> None:
    log = Log(PLAIN)

    def row(number: int, written: int, offset: int) -> Change:
        return with_source(log.insert((number,), (), written, v="a"), host="h", position=Position(1, 1, offset))

    records = [row(1, 10, 1), row(2, 20, 2), truncate(PLAIN, "h", 50, Position(1, 1, 3)), row(4, 60, 4)]
    before, between, truncation, behind = (
        DeadLetter(RecordId(TOPIC, 0, number, ENCODER.schema_id), "a right is missing", ENCODER.value(change))
        for number, change in enumerate(records)
    )
    place = Place(f"sqlite:///{tmp_path / 'sink.db'}", [between, truncation])
    with closing(place.sink()) as sink:
        write_here(sink, understood(records_of([before, behind])))
    assert place.rows() == [1, 4]
    assert place.replay() == [ReplayCounts(taken=2)]
    assert place.rows() == [4]


class Dying(MemoryLetters):
    """Where a command dies that has written letters and has yet to remove them."""

    def remove(self, letters: Sequence[DeadLetter]) -> int:  # noqa: ARG002 - it is a LetterBox's
        raise ServiceError("the process is dead")


@pytest.mark.promise("sinks.dead-letters")
def test_a_replay_that_dies_before_it_removes_them_is_run_again(place: Place) -> None:
    with pytest.raises(ServiceError, match="the process is dead"):
        place.replay(box=Dying(place.letters.name))
    assert len(place.rows()) == 2
    assert place.waiting() == [*range(7)]
    assert sum(place.replay(), ReplayCounts()) == ReplayCounts(taken=7)
    assert (place.rows(), place.waiting()) == ([*range(7)], [])


@pytest.mark.promise("sinks.dead-letters")
def test_a_stream_sets_one_aside_meanwhile(place: Place) -> None:
    """Its batch came again."""

    def beside(records: Any) -> Iterator[Piece]:
        place.letters.put(LETTERS[3:4])
        yield from understood(records)

    assert sum(place.replay(beside), ReplayCounts()) == ReplayCounts(taken=6, again=1)
    assert place.waiting() == [3]


def test_all_are_removed(place: Place) -> None:
    assert remove_letters(place.letters) == 7
    assert (place.rows(), place.waiting()) == ([], [])
