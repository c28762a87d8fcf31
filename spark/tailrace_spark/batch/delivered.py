"""A change as it was delivered: made once for each record, and so compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from tailrace_schemas.change import Change
from tailrace_schemas.pickling import pickled_by_fields
from tailrace_schemas.streams import Assignment

if TYPE_CHECKING:
    from tailrace_spark.batch.delivery import Transaction
    from tailrace_spark.batch.row_image import Imaged

RecordKey = tuple[str, int, int]
"""Topic, partition and offset."""


@dataclass(slots=True, init=False, unsafe_hash=True)
class RecordId:
    """A record's place in Kafka, and the id of its writer's schema (empty where its frame was not readable)."""

    topic: Final[str]
    partition: Final[int]
    offset: Final[int]
    schema_id: Final[bytes]

    def __init__(self, topic: str, partition: int, offset: int, schema_id: bytes = b"") -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.schema_id = schema_id

    @property
    def key(self) -> RecordKey:
        """What names it, whatever its schema."""
        return self.topic, self.partition, self.offset

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """That of a JSON object with the members of `to_json`, whatever else it has."""
        return cls(value["topic"], value["partition"], value["offset"], bytes.fromhex(value.get("schema") or ""))

    def to_json(self) -> dict[str, object]:
        """`topic`, `partition`, `offset`, and `schema` as hexadecimal digits; null where there is none."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "schema": self.schema_id.hex() or None,
        }


pickled_by_fields(RecordId)


@dataclass(slots=True, init=False, unsafe_hash=True)
class Delivered:
    """One change, as it was read from its place, and its stream; None where Spark could not tell its token.

    Of two definitions of a table the newer has the larger `announced`, the schema's offset in `.schemas`. `others` are
    the streams for more write times of the change, in microseconds: those that an UpdateSink asks by. `message` is the
    record's value, for a dead letter. `images` and `transaction` are there where a sink was asked for them.
    """

    record_id: Final[RecordId]
    change: Final[Change]
    assignment: Final[Assignment | None]
    announced: Final[int]
    others: Final[tuple[tuple[int, Assignment], ...]]
    message: bytes = field(repr=False)
    images: Final[Imaged | None]
    transaction: Final[Transaction | None]

    def __init__(
        self,
        record_id: RecordId,
        change: Change,
        assignment: Assignment | None = None,
        announced: int = -1,
        others: tuple[tuple[int, Assignment], ...] = (),
        message: bytes = b"",
        images: Imaged | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        self.record_id = record_id
        self.change = change
        self.assignment = assignment
        self.announced = announced
        self.others = others
        self.message = message
        self.images = images
        self.transaction = transaction

    @property
    def update(self) -> tuple[object, ...]:
        """What names its table update, as one agent published it: equal for all changes of that."""
        record_id, source = self.record_id, self.change.source
        if source is None:
            return record_id.key
        return record_id.topic, record_id.partition, source.host, source.position, source.origin
