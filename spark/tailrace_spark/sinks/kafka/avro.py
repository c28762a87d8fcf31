"""Keys and values of Kafka in Confluent's Avro: 00, the 4 bytes of a registry's id, the body. Asks by what it is given.

Changes are the record of docs/contracts.md 3 with their place. Connect's schemas are translated as Confluent's
AvroConverter does it (io.confluent.connect.avro.AvroData), so that it gives back the same ones.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from fastavro import parse_schema, schemaless_writer

from tailrace_schemas.avro.convert import YEARS
from tailrace_schemas.avro.frames import frame
from tailrace_schemas.avro.names import Part, avro_name, subject_of
from tailrace_schemas.avro.schema import KeyChoice, canonical_text, key_schema, value_schema
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.errors import SchemaRefusedError
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import RecordId
from tailrace_spark.sinks.arrow.types import within
from tailrace_spark.sinks.changelog.sink import OutgoingRecord
from tailrace_spark.sinks.kafka.avro_splice import Splice, is_dated
from tailrace_spark.sinks.kafka.debezium import Write

_Schema = dict[str, Any]
_CONNECT_PRIMITIVES: Final[Mapping[str, Any]] = {
    "int8": {"type": "int", "connect.type": "int8"},
    "int16": {"type": "int", "connect.type": "int16"},
    "int32": "int",
    "int64": "long",
}
_PLACE: Final[list[_Schema]] = [
    {"name": "topic", "type": "string"},
    {"name": "partition", "type": "int"},
    {"name": "offset", "type": "long"},
    {"name": "schema", "type": ["null", "bytes"], "default": None},
    {"name": "generation", "type": ["null", "long"], "default": None},
    {"name": "stream_id", "type": ["null", "bytes"], "default": None},
]


class Registry(Protocol):
    """Who gives schemas their ids: tailrace_common.kafka.schema_registry."""

    def id_of(self, subject: str, text: str) -> int: ...

    def reach(self) -> str: ...

    def close(self) -> None: ...


class AvroWriters:
    """What writes the values of one schema under its id; subjects are <topic>-key and <topic>-value.

    A schema that was refused is asked for once more in each batch, which `begin` begins.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._refused: dict[tuple[str, str], SchemaRefusedError] = {}

    def begin(self) -> None:
        """Forget what was refused."""
        self._refused.clear()

    def of(self, topic: str, part: Part, schema: _Schema) -> Callable[[object], bytes]:
        """What writes values of the schema. Raises as `head`."""
        return writer(self.head(topic, part, schema), schema)

    def head(self, topic: str, part: Part, schema: _Schema) -> bytes:
        """What stands before a value. Raises SchemaRefusedError, and ServiceError where the registry does not answer or
        refuses us."""
        text = canonical_text(schema)
        return frame(self._id(subject_of("TopicName", topic, part, text), text).to_bytes(4, "big"))

    def _id(self, subject: str, text: str) -> int:
        refused = self._refused.get((subject, text))
        if refused is not None:
            raise SchemaRefusedError(str(refused))
        try:
            return self._registry.id_of(subject, text)
        except SchemaRefusedError as error:
            self._refused[subject, text] = error
            raise

    def connect(self, topic: str, part: Part, schema: _Schema) -> Write:
        """What writes the values of one of Connect's schemas. Raises as `of`."""
        write = self.of(topic, part, avro_of_connect(schema))
        return lambda value: write(_avro_value(schema, value))


def writer(head: bytes, schema: _Schema) -> Callable[[object], bytes]:
    """What writes values of a schema behind a head."""
    parsed = parse_schema(schema)

    def write(value: object) -> bytes:
        buffer = io.BytesIO(head)
        buffer.seek(len(head))
        schemaless_writer(buffer, parsed, value)
        return buffer.getvalue()

    return write


class AvroChanges:
    """Changes and their keys; `prefix` stands before the namespaces of the schemas."""

    content_type = "application/avro"

    def __init__(self, writers: AvroWriters, prefix: str, key: KeyChoice) -> None:
        self._writers = writers
        self._prefix = prefix
        self._key_choice = key
        self._topic_writers: dict[tuple[int, str], _TopicWriter] = {}

    def key(self, topic: str, record: OutgoingRecord) -> bytes | None:
        """The key's columns; None for a truncation. Raises as `AvroWriters.of`."""
        topic_writer = self._topic_writer(topic, record.change.table)
        if topic_writer.splice.knows(record.message, record.change):
            body = topic_writer.splice.key(record.message)
            return None if body is None else topic_writer.key_head + body
        key = topic_writer.within(record.record)["key"]
        return None if key is None else topic_writer.key(key)

    def value(self, topic: str, record: OutgoingRecord) -> bytes:
        """The change with its place. Raises as `AvroWriters.of`."""
        topic_writer = self._topic_writer(topic, record.change.table)
        if topic_writer.splice.knows(record.message, record.change):
            return topic_writer.value_head + topic_writer.splice.value(
                record.message, record.record_id, record.assignment
            )
        return topic_writer.value({**topic_writer.within(record.record), **_place(record)})

    def _topic_writer(self, topic: str, table: Table) -> _TopicWriter:
        topic_writer = self._topic_writers.get((id(table), topic))
        if topic_writer is None:
            # Which keeps the table, and so its id.
            topic_writer = _TopicWriter(self._writers, topic, table, self._prefix, self._key_choice)
            self._topic_writers[id(table), topic] = topic_writer
        return topic_writer


class _TopicWriter:
    """What writes the changes of one definition into one topic."""

    def __init__(self, writers: AvroWriters, topic: str, table: Table, prefix: str, key: KeyChoice) -> None:
        self.table = table
        self._dated = any(is_dated(column.type) for column in (*table.key, *table.columns))
        self.splice = Splice(table, prefix, key)
        value_type, key_type = change_schema(table, prefix), key_schema(table, prefix, key, outward=True)
        self.value_head, self.key_head = writers.head(topic, "value", value_type), writers.head(topic, "key", key_type)
        self.value = writer(self.value_head, value_type)
        self.key = writer(self.key_head, key_type)

    def within(self, record: dict[str, object]) -> Mapping[str, Any]:
        """The record, in which timestamps and dates that readers cannot take are null, their bytes in `raw`."""
        return within(self.table, record, _within_years) if self._dated else record


def change_schema(table: Table, prefix: str) -> _Schema:
    """The schema of a table's changes with their places."""
    schema: dict[str, Any] = value_schema(table, prefix, outward=True)
    return {**schema, "fields": [*schema["fields"], *_PLACE]}


def _place(record: OutgoingRecord) -> dict[str, object]:
    record_id: RecordId = record.record_id
    assignment = record.assignment
    return {
        "topic": record_id.topic,
        "partition": record_id.partition,
        "offset": record_id.offset,
        "schema": record_id.schema_id or None,
        "generation": None if assignment is None else assignment.generation,
        "stream_id": None if assignment is None else assignment.stream_id,
    }


def avro_of_connect(schema: Mapping[str, Any]) -> _Schema:
    """The Avro schema of a struct of Connect's, in the form of its JsonConverter."""
    record = _connected(schema, set())
    assert isinstance(record, dict)  # noqa: S101 - of a struct it is a record
    return record


def _connected(schema: Mapping[str, Any], defined: set[str]) -> Any:
    if schema["type"] == "struct":
        return _record(schema, defined)
    kind = _CONNECT_PRIMITIVES.get(schema["type"], schema["type"])
    if "name" not in schema:
        return kind
    typed = kind if isinstance(kind, dict) else {"type": kind}
    return {**typed, "connect.version": schema["version"], "connect.name": schema["name"]}


def _record(schema: Mapping[str, Any], defined: set[str]) -> Any:
    name = ".".join(map(avro_name, schema["name"].split(".")))
    if name in defined:
        return name
    defined.add(name)
    fields = [_connected_field(field, defined) for field in schema["fields"]]
    version = {"connect.version": schema["version"]} if "version" in schema else {}
    return {"type": "record", "name": name, "fields": fields, **version, "connect.name": schema["name"]}


def _connected_field(field: Mapping[str, Any], defined: set[str]) -> _Schema:
    name, kind = avro_name(field["field"]), _connected(field, defined)
    return (
        {"name": name, "type": ["null", kind], "default": None} if field["optional"] else {"name": name, "type": kind}
    )


def _avro_value(schema: Mapping[str, Any], value: Any) -> Any:
    """A value as JsonConverter has it, as Avro does."""
    if value is None:
        return None
    if schema["type"] == "struct":
        return {avro_name(field["field"]): _avro_value(field, value[field["field"]]) for field in schema["fields"]}
    return base64.b64decode(value) if schema["type"] == "bytes" else value


def _within_years(of: CqlType, value: Any) -> Any:
    """A value of a type; None where a timestamp or date in it is outside of the years 1 to 9999: `raw` has its bytes.

    Cassandra takes them, and so do Java's readers. Python's raise on them, and never get past such a record.
    """
    return None if _outside(of, value) else value


def _outside(cql_type: CqlType, value: Any) -> bool:
    """Whether anything in a value is outside of what readers have."""
    if value is None or not is_dated(cql_type):
        return False
    kind, args = cql_type.kind, cql_type.args
    if kind in YEARS:
        first, last = YEARS[kind]
        return not first <= value <= last
    if kind == "map":
        return any(_outside(args[0], item["key"]) or _outside(args[1], item["value"]) for item in value)
    if kind == "tuple":
        return any(_outside(arg, value.get(f"f{index}")) for index, arg in enumerate(args))
    if kind == "udt":
        fields = zip(cql_type.fields, args, strict=True)
        return any(_outside(arg, value.get(avro_name(field))) for field, arg in fields)
    return any(_outside(args[0], item) for item in value)
