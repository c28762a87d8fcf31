"""Pieces of a micro-batch put together, so that what is done once for each table of a piece is done less often."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from tailrace_spark.batch.delivery import Piece

_JOINED: Final = 5  # pieces: 10,000 changes, or 80 MiB of messages at the most


def coalesced(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The pieces, several as one; the first ones are fewer, so that the database has something to do sooner."""
    remaining, several = iter(pieces), 1
    while some := list(islice(remaining, several)):
        yield _join(some)
        several = min(2 * several, _JOINED)


def _join(pieces: Sequence[Piece]) -> Piece:
    changes = [change for piece in pieces for change in piece.changes]
    letters = [letter for piece in pieces for letter in piece.dead_letters]
    return Piece(tuple(changes), tuple(letters))
