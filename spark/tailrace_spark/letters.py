"""Dead letters of a sink, written into it again: once what they wanted is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from tailrace_spark.sinks.protocol import DeadLetter, LetterSink, Piece, Place, Summary

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


Fetch = Callable[[Place], bytes | None]
"""The value of the record at a place; None where there is none any more."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of some letters: taken in, set aside again, or left, since nobody has their bytes."""

    taken: int = 0
    again: int = 0
    left: int = 0

    def __add__(self, other: Replayed) -> Replayed:
        return Replayed(self.taken + other.taken, self.again + other.again, self.left + other.left)


def all_letters(sink: LetterSink) -> Iterator[DeadLetter]:
    """Every letter, by topic, partition and offset."""
    for some in _parts(sink):
        yield from some


def replayed(sink: LetterSink, pieces_of: Callable[[Any], Iterable[Piece]], fetch: Fetch) -> Iterator[Replayed]:
    """Write every letter again, some at a time; what became of each part, when it is committed.

    `pieces_of` makes pieces of records, a pyarrow Table (tailrace_spark.pieces). `fetch` reads the bytes of one that
    was set aside without. A stream may write meanwhile.
    """
    for some in _parts(sink):
        known = [letter if letter.message else replace(letter, message=fetch(letter.place) or b"") for letter in some]
        whole = [letter for letter in known if letter.message]
        done = sink.write_again(whole, pieces_of(_records(whole))) if whole else Summary()
        again = done.dead_letters
        yield Replayed(taken=len(whole) - again, again=again, left=len(some) - len(whole))


def _parts(sink: LetterSink) -> Iterator[Sequence[DeadLetter]]:
    after = None
    while some := sink.letters(after, AT_ONCE):
        yield some
        after = some[-1].place


def _records(letters: Sequence[DeadLetter]) -> pa.Table:
    places = [letter.place for letter in letters]
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
