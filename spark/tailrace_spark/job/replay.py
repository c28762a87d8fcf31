"""Dead letters of a sink, written into it again: once what they wanted is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, RecordId, Summary
from tailrace_spark.sinks.protocol import DeadLetterSink, UpdateSink
from tailrace_spark.source.table_updates import OpenUpdate, with_streams
from tailrace_spark.streams.lookup import StreamTable

AT_ONCE: Final = 500
_RECORDS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("value", pa.binary()),
        ("generation", pa.int64()),
        ("stream_id", pa.binary()),
    ]
)


Fetch = Callable[[RecordId], bytes | None]
"""The value of the record at a place; None where there is none any more."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of some letters: taken in, set aside again, or left, since nobody has their bytes."""

    taken: int = 0
    again: int = 0
    left: int = 0

    def __add__(self, other: Replayed) -> Replayed:
        return Replayed(self.taken + other.taken, self.again + other.again, self.left + other.left)


def all_letters(sink: DeadLetterSink) -> Iterator[DeadLetter]:
    """Every letter, by topic, partition and offset."""
    for some in _parts(sink):
        yield from some


def replayed(sink: DeadLetterSink, pieces_of: Callable[[Any], Iterable[Piece]], fetch: Fetch) -> Iterator[Replayed]:
    """Write every letter again, some at a time; what became of each part, when it is committed.

    `pieces_of` makes pieces of records, a pyarrow Table (`source.decode`). `fetch` reads the bytes of one that
    was set aside without. A stream may write meanwhile.
    """
    for some in _parts(sink):
        whole = [letter for letter in _with_bytes(some, fetch) if letter.message]
        done = sink.replay(whole, pieces_of(records_of(whole))) if whole else Summary()
        again = done.dead_letters
        yield Replayed(taken=len(whole) - again, again=again, left=len(some) - len(whole))


def replayed_whole(
    sink: DeadLetterSink,
    pieces_of: Callable[[Any], Iterable[Piece]],
    fetch: Fetch,
    updates: UpdateSink,
    table: StreamTable,
) -> Iterator[Replayed]:
    """As `replayed`, for a sink that needs table updates whole, with their streams; `updates` is the same sink.

    An update goes with the last of its letters. One of which not all changes are letters stays: its rows count on from
    those that are missing.
    """
    open_updates: dict[object, _Update] = {}
    for some in _parts(sink):
        known = _with_bytes(some, fetch)
        by_place = {letter.record_id.key: letter for letter in known if letter.message}
        done: list[DeadLetter] = []
        changes: list[Delivered] = []
        refused: list[DeadLetter] = []
        for piece in pieces_of(records_of(list(by_place.values()))):
            for letter in piece.dead_letters:
                refused.append(letter)
                done.append(by_place[letter.record_id.key])
            for delivered in piece.changes:
                name = _update_of(delivered)
                update = open_updates.setdefault(name, _Update())
                update.letters.append(by_place[delivered.record_id.key])
                update.parts.add(delivered)
                if update.parts.whole:
                    done += update.letters
                    changes += open_updates.pop(name).parts.in_order()
        given = [with_streams(Piece(tuple(changes)), table, updates.write_times), Piece((), tuple(refused))]
        again = sink.replay(done, given).dead_letters if done else 0
        yield Replayed(taken=len(done) - again, again=again, left=len(some) - len(by_place))
    if open_updates:
        yield Replayed(again=sum(len(update.letters) for update in open_updates.values()))


@dataclass(slots=True)
class _Update:
    """An update some of whose changes are letters that were met."""

    parts: OpenUpdate = field(default_factory=OpenUpdate)
    letters: list[DeadLetter] = field(default_factory=list)


def _update_of(delivered: Delivered) -> object:
    """What the changes of one update, as one agent published it, have in common."""
    place, source = delivered.record_id, delivered.change.source
    if source is None:
        return place.key
    return place.topic, place.partition, source.host, source.epoch, source.segment, source.offset, source.origin


def _with_bytes(letters: Sequence[DeadLetter], fetch: Fetch) -> list[DeadLetter]:
    return [letter if letter.message else replace(letter, message=fetch(letter.record_id) or b"") for letter in letters]


def _parts(sink: DeadLetterSink) -> Iterator[Sequence[DeadLetter]]:
    after = None
    while some := sink.dead_letters(after, AT_ONCE):
        yield some
        after = some[-1].record_id


def records_of(letters: Sequence[DeadLetter]) -> pa.Table:
    """The records that letters were made of, as tailrace_spark.source.decode has them, without streams."""
    places = [letter.record_id for letter in letters]
    nothing = [None] * len(letters)
    columns = [
        [place.topic for place in places],
        [place.partition for place in places],
        [place.offset for place in places],
        [letter.message for letter in letters],
        nothing,
        nothing,
    ]
    return pa.table([pa.array(values, field.type) for values, field in zip(columns, _RECORDS, strict=True)], _RECORDS)
