"""The last changes in the topics of a subscription, as its sink is given them: with masks, and without a filter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tailrace_common.kafka import RecentRecords
from tailrace_common.settings import Settings
from tailrace_common.topics import SchemaReader
from tailrace_schemas.avro.decode import reader_of
from tailrace_schemas.avro.frames import message_schema_id
from tailrace_schemas.change_json import ChangeForms, edit_words, key_words, time_words
from tailrace_schemas.errors import DecodeError, SettingsError
from tailrace_schemas.masks import Masks
from tailrace_schemas.topics import KafkaPartition
from tailrace_server.model.subscription import Subscription
from tailrace_server.worker.settings import stream_settings, topics_pattern
from tailrace_spark.shaping import masks_of

MOST: Final = 20
_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A change for people. `timestamp` is Kafka's, in milliseconds."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    written: str = ""
    operation: str = ""
    key: str = ""
    edit: str = ""
    problem: str = ""


class Changes:
    """Reads them when somebody looks. It keeps nothing."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def of(self, subscription: Subscription) -> list[Line]:
        """The newest first. Raises ServiceError where Kafka does not answer."""
        settings = stream_settings(self._settings, subscription, "unused")
        kafka, masks = settings.kafka.reveal(), masks_of(settings.stream)
        recent = RecentRecords(kafka, timeout=_SECONDS).of(topics_pattern(subscription), MOST)
        forms = ChangeForms()
        with SchemaReader(kafka, settings.topics.prefix, timeout=_SECONDS) as schemas:
            lines = [
                _line(partition, record.offset, record.timestamp, record.value, schemas, masks, forms)
                for partition, record in recent
                if record.value is not None
            ]
        return [line for line in lines if line is not None]


def _line(
    partition: KafkaPartition,
    offset: int,
    timestamp: int,
    value: bytes,
    schemas: SchemaReader,
    masks: Masks | None,
    forms: ChangeForms,
) -> Line | None:
    """None for a change of which masks leave nothing."""
    topic, index = partition
    try:
        entry = schemas[message_schema_id(value)]
        change = reader_of(entry).change(reader_of(entry).record(value))
        if masks is not None:
            shaped = masks.change(change)
            if shaped is None:
                return None
            change = shaped
        record = forms.of(change.table).record(change)
    except (DecodeError, SettingsError, KeyError, ValueError) as error:
        words = f"cannot be shown: {type(error).__name__}"  # its words may have values of the row
        return Line(topic=topic, partition=index, offset=offset, timestamp=timestamp, problem=words)
    return Line(
        topic=topic,
        partition=index,
        offset=offset,
        timestamp=timestamp,
        written=time_words(int(str(record["written"]))),
        operation=str(record["op"]),
        key=key_words(change.table, record),
        edit=edit_words(change.table, record),
    )
