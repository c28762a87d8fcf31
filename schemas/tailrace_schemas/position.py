"""Positions in a host's commit log: totally ordered, exact to the mutation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tailrace_schemas.pickling import pickled_by_fields


@dataclass(slots=True, init=False, unsafe_hash=True, order=True)
class Position:
    """The end of a mutation: log epoch, segment id, logical offset (Cassandra's CommitLogPosition). Per host."""

    epoch: Final[int]
    segment: Final[int]
    offset: Final[int]

    def __init__(self, epoch: int, segment: int, offset: int) -> None:
        self.epoch = epoch
        self.segment = segment
        self.offset = offset

    def __str__(self) -> str:
        return f"{self.epoch}/{self.segment}:{self.offset}"


pickled_by_fields(Position)


def position_to_json(position: Position) -> dict[str, int]:
    """{epoch, segment, offset}."""
    return {"epoch": position.epoch, "segment": position.segment, "offset": position.offset}


def position_from_json(record: Mapping[str, Any]) -> Position:
    """The way back. Raises what int and look-ups raise, for anything else."""
    return Position(int(record["epoch"]), int(record["segment"]), int(record["offset"]))


NO_POSITION: Final = Position(0, 0, 0)
"""Of a source that no mutation has been named for yet."""
