"""A micro-batch as sinks take it: pieces, each change with its place in Kafka, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from tailrace_schemas.formats import require_format
from tailrace_spark.batch.delivered import Delivered, RecordId, RecordKey

__all__ = [
    "LETTER_FORMAT",
    "DeadLetter",
    "Delivered",
    "Piece",
    "RecordId",
    "RecordKey",
    "Summary",
    "Transaction",
    "first_of",
]

LETTER_FORMAT: Final = 1
"""Of dead letters."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """Where a change stands among those of one mutation's update of its table.

    `id` has 16 bytes, the mutation digest (docs/contracts.md 3): equal in the copies of all replicas. `index` counts
    from 0. `count` is None where changes of the update are missing, since nobody could decode them. `begins` is the
    offset of the first one's record; `ends` is true of the last one that is there.
    """

    id: bytes
    index: int
    count: int | None
    begins: int
    ends: bool

    def to_json(self) -> dict[str, object]:
        """`id` as hexadecimal digits, `index` and `count`."""
        return {"id": self.id.hex(), "index": self.index, "count": self.count}


def first_of(record_id: RecordId, transaction: Transaction | None) -> RecordId:
    """The record that decides whether all of a change's transaction is written: its first, else its own."""
    return record_id if transaction is None else replace(record_id, offset=transaction.begins)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One record that cannot be merged: where it is, why, and its bytes, where whoever sets it aside has them.

    `transaction` is the change's, where it has one.
    """

    record_id: RecordId
    reason: str
    message: bytes = field(default=b"", repr=False)
    transaction: Transaction | None = field(default=None, repr=False, compare=False)

    @property
    def first_id(self) -> RecordId:
        """As `first_of`."""
        return first_of(self.record_id, self.transaction)

    @classmethod
    def from_json(cls, value: Mapping[str, Any], store: str = "") -> Self:
        """That of a JSON object with the members of `to_json`, whatever else it has.

        `store` names the place that has it, for people. Raises SettingsError for one of another format.
        """
        require_format(f"a dead letter in {store}", value.get("format"), LETTER_FORMAT)
        return cls(RecordId.from_json(value), value["reason"], bytes.fromhex(value.get("message") or ""))

    def to_json(self) -> dict[str, object]:
        """The record's place, `reason`, `message` as hexadecimal digits or null, and `format`."""
        message = self.message.hex() or None
        return {**self.record_id.to_json(), "reason": self.reason, "message": message, "format": LETTER_FORMAT}


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a micro-batch that fits into memory: changes in any order, and records that were no changes."""

    changes: tuple[Delivered, ...]
    dead_letters: tuple[DeadLetter, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """What became of a micro-batch: changes merged, rows whose state changed, records set aside.

    `deferred` changes are kept until the store takes those of their table again. `refused` says by "keyspace.table" why
    changes of a table were set aside or kept; of several reasons the last.
    """

    changes: int = 0
    rows: int = 0
    dead_letters: int = 0
    deferred: int = 0
    refused: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __add__(self, other: Summary) -> Summary:
        return Summary(
            self.changes + other.changes,
            self.rows + other.rows,
            self.dead_letters + other.dead_letters,
            self.deferred + other.deferred,
            {**self.refused, **other.refused},
        )
