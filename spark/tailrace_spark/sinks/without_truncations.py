"""A task's pieces, as long as no truncation is among them: that is of all partitions, and so the driver's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tailrace_schemas.change import Op
from tailrace_spark.batch.delivery import Piece
from tailrace_spark.sinks.protocol import DriverOnlyError


def without_truncations(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The pieces. Raises DriverOnlyError at one with a truncation, of which nothing is written then."""
    for piece in pieces:
        for delivered in piece.changes:
            if delivered.change.op is Op.TRUNCATE:
                raise DriverOnlyError(f"a truncation of {delivered.change.table}, which is of all keys")
        yield piece
