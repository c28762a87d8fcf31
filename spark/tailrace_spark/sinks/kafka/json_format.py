"""A record as a sink sends it to Kafka: changes in JSON, and as events of CloudEvents 1.0. No I/O."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Protocol

from tailrace_spark.sinks.changelog.sink import OutgoingRecord, encoded, key_of

Headers = tuple[tuple[str, bytes], ...]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class KafkaRecord(NamedTuple):
    """One record for a partition that the sink chose. `value` None is a tombstone of its key.

    A tuple, which is made in a quarter of the time that a frozen dataclass takes.
    """

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    @property
    def size(self) -> int:
        """The bytes of its key, value and headers."""
        size = len(self.key or b"") + len(self.value or b"")
        return size + sum([len(name) + len(value) for name, value in self.headers]) if self.headers else size


class ChangeForm(Protocol):
    """What makes keys and values of changes; `content_type` is the values' media type.

    Both raise SchemaRefusedError where the change's table cannot be written so.
    """

    content_type: str

    def key(self, topic: str, record: OutgoingRecord) -> bytes | None:
        """None for a truncation."""

    def value(self, topic: str, record: OutgoingRecord) -> bytes: ...


class JsonChanges:
    """Changes as JSON (docs/change-json.md); `whole`: by their primary key; `structured`: each in its event."""

    content_type = "application/json"

    def __init__(self, *, primary: bool, structured: bool) -> None:
        self._primary = primary
        self._structured = structured

    def key(self, topic: str, record: OutgoingRecord) -> bytes | None:  # noqa: ARG002 - the form's
        """The key's columns as a JSON object; None for a truncation."""
        return key_of(record, primary=self._primary)

    def value(self, topic: str, record: OutgoingRecord) -> bytes:  # noqa: ARG002 - the form's
        """The change, or its event."""
        return encoded(cloud_event(record)) if self._structured else record.json


def cloud_event(record: OutgoingRecord) -> dict[str, object]:
    """A change as an event of CloudEvents 1.0 in structured mode."""
    return {**_attributes(record), "datacontenttype": "application/json", "data": record.value}


def event_headers(record: OutgoingRecord, content_type: str) -> Headers:
    """The headers that make a record of Kafka an event in binary mode (the Kafka protocol binding, 3.2)."""
    named = [(f"ce_{name}", value.encode()) for name, value in _attributes(record).items()]
    return (*named, ("content-type", content_type.encode()))


def _attributes(record: OutgoingRecord) -> dict[str, str]:
    """`id` is the change's place, `source` its topic, `time` its write time."""
    record_id, written = record.record_id, record.written
    attributes = {
        "specversion": "1.0",
        "id": f"{record_id.partition}/{record_id.offset}",
        "source": f"/tailrace/{record_id.topic}",
        "type": f"tailrace.change.{record.change.op.value}",
        "subject": str(record.change.table),
    }
    with suppress(OverflowError):  # before year 1 or after 9999, which RFC 3339 cannot say; the change itself has it
        attributes["time"] = (_EPOCH + timedelta(microseconds=written)).isoformat()
    return attributes
