"""Pieces of a micro-batch on their way: put together, one copy of each change, one ahead, with the collector held
off.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Final, Protocol, TypeVar, runtime_checkable

from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import Piece

Item = TypeVar("Item")
_END: Final = object()
_JOINED: Final = 5  # pieces: 10,000 changes, or 80 MiB of messages at the most


def prefetched(items: Iterable[Item]) -> Iterator[Item]:
    """The items, in order, each made in a thread of its own while the caller uses the one before.

    One at the most waits to be used. What making one raises is raised in its turn, behind all items before it. When
    the caller stops early the one that is being made is waited for, and forgotten.
    """
    iterator = iter(items)
    with ThreadPoolExecutor(1, "tailrace-ahead") as pool:
        coming = pool.submit(next, iterator, _END)
        while (item := coming.result()) is not _END:
            coming = pool.submit(next, iterator, _END)
            yield item  # type: ignore[misc]  # all but _END are items


@contextmanager
def gc_paused() -> Iterator[None]:
    """Inside, the collector looks at nothing: what has no cycles goes without it, and looking at it all costs a third.

    Use it around a bounded amount of work. Where the collector is off anyway it stays so.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


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


@runtime_checkable
class CopiedPieces(Iterable[Piece], Protocol):
    """A task's pieces, which can leave copies out before they are decoded."""

    def one_copy(self, truncated: Callable[[Table], bool]) -> Iterator[Piece]:
        """As the function."""


def one_copy(pieces: Iterable[Piece], truncated: Callable[[Table], bool]) -> Iterable[Piece]:
    """The pieces, as far as they can without more copies of a change, but of tables that are `truncated`.

    Of these one copy may stand before the truncation in its host's log, and another one behind it. A table is asked
    for once, with its first change.
    """
    return pieces.one_copy(truncated) if isinstance(pieces, CopiedPieces) else pieces
