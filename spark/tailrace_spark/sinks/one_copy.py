"""One copy of each change that replicas publish, for tasks that make rows of changes: more copies change no row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, runtime_checkable

from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import Piece


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
