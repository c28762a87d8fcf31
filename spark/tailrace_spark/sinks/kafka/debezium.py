"""Row images as Debezium's change events: values of Kafka Connect, which its JsonConverter with schemas, or what a
caller brings (Avro's), makes bytes of. No I/O.

So Debezium's own transforms and sinks take them for a relational connector's (docs/sinks/kafka.md): envelope and key
by `Envelope` and `Key`, logical types by their names.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version as version_of
from typing import Any, Final

from tailrace_schemas.avro.names import Part
from tailrace_schemas.change import Change, Op, Origin, record_times
from tailrace_schemas.change_json import compact_json
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.errors import UnsupportedError
from tailrace_schemas.table import Column, Table
from tailrace_spark.batch.delivery import RecordId
from tailrace_spark.batch.row_image import Imaged, RowImage
from tailrace_spark.rowstate.visible import ImageOp
from tailrace_spark.sinks.kafka.json_format import KafkaRecord
from tailrace_spark.sinks.kafka.settings import STATIC

CONNECTOR: Final = "tailrace"
_READ: Final = "r"
"""The `op` of a row that was read, not logged."""
_LOGICAL: Final[Mapping[str, tuple[str, str]]] = {
    "timestamp": ("int64", "io.debezium.time.Timestamp"),
    "date": ("int32", "io.debezium.time.Date"),
    "time": ("int64", "io.debezium.time.NanoTime"),
    "uuid": ("string", "io.debezium.data.Uuid"),
    "timeuuid": ("string", "io.debezium.data.Uuid"),
}
_PLAIN: Final[Mapping[str, str]] = {
    "boolean": "boolean",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "counter": "int64",
    "float": "float",
    "double": "double",
    "text": "string",
    "ascii": "string",
    "inet": "string",
    "varint": "string",
    "decimal": "string",
}
_NESTED: Final = frozenset({"list", "set", "map", "tuple", "udt", "vector", "duration"})
_JSON: Final = ("string", "io.debezium.data.Json")
_SOURCE: Final = (
    ("version", "string", False),
    ("connector", "string", False),
    ("name", "string", False),
    ("ts_ms", "int64", False),
    ("snapshot", "string", True),
    ("db", "string", False),
    ("sequence", "string", True),
    ("ts_us", "int64", True),
    ("ts_ns", "int64", True),
    ("table", "string", False),
    ("host", "string", True),
    ("datacenter", "string", True),
    ("segment", "int64", True),
    ("position", "int64", True),
    ("topic", "string", False),
    ("partition", "int32", False),
    ("offset", "int64", False),
)
Schema = dict[str, Any]
Write = Callable[[Mapping[str, Any]], bytes]
Writer = Callable[[str, Part, Schema], Write]
"""What writes the keys or values of a topic that have a schema of Connect's, in the form of JsonConverter."""
_Convert = Callable[[Any], Any]


def connect_type(cql_type: CqlType) -> tuple[str, str | None]:
    """Connect's type of a column's values, and the name of its logical type."""
    if cql_type.kind in _NESTED:
        return _JSON
    return _LOGICAL.get(cql_type.kind) or (_PLAIN.get(cql_type.kind, "bytes"), None)


class DebeziumForm:
    """Makes the events of a stream. `name` is the source's prefix, as `source.name` says it.

    `partition` chooses one of a topic by the token of a key. What it and `writer` raise, `events` and `expired` do.
    """

    def __init__(
        self, name: str, partition: Callable[[str, int], int], *, tombstones: bool = True, writer: Writer | None = None
    ) -> None:
        self._name = name
        self._partition = partition
        self._writer = writer or json_writer
        self._tombstones = tombstones
        self._known: dict[tuple[int, str, bool], _RowSchemas] = {}

    def events(self, topic: str, change: Change, record_id: RecordId, imaged: Imaged) -> Iterator[KafkaRecord]:
        """The events of one change, row by row, each `d` with its tombstone behind it; `topic` is the table's.

        A row that the change left as it was has none. Raises UnsupportedError where images cannot be told, and behind
        all other rows where a key column has no value that Connect could hold.
        """
        if imaged.images is None:
            raise UnsupportedError("no image of its rows can be told (docs/images.md), so no event")
        read = change.op is Op.READ
        yield from self._events(topic, change, record_id, imaged.table, imaged.images, read=read)

    def expired(self, topic: str, change: Change, record_id: RecordId, imaged: Imaged) -> Iterator[KafkaRecord]:
        """Those of what had expired when the change came. Raises UnsupportedError as `events`."""
        if imaged.expired is None:
            raise UnsupportedError("no image of what has expired can be told (docs/images.md), so no event")
        return self._events(topic, change, record_id, imaged.table, imaged.expired, read=False)

    def _events(
        self,
        topic: str,
        change: Change,
        record_id: RecordId,
        table: Table,
        images: Sequence[RowImage],
        *,
        read: bool,
    ) -> Iterator[KafkaRecord]:
        if not images:
            return
        source = self._source(change, record_id)
        refused: UnsupportedError | None = None
        for image in images:
            if image.op is not ImageOp.UPDATE or image.changed:
                was_read = read and image.op is not ImageOp.DELETE
                try:
                    yield from self._event(self._schemas_of(table, topic, image.static), image, source, read=was_read)
                except UnsupportedError as error:
                    refused = error
        if refused is not None:
            raise refused

    def _event(
        self, schemas: _RowSchemas, image: RowImage, source: Mapping[str, Any], *, read: bool
    ) -> Iterator[KafkaRecord]:
        """The event of a row; of one that was `read`, not logged, Debezium gives no row before it."""
        key_values = schemas.key_values(image)
        key = schemas.key(key_values)
        seen_ms = source["seen"]
        payload = {
            "before": None if read else schemas.row(key_values, image.before),
            "after": schemas.row(key_values, image.after),
            "source": source["payload"],
            "op": _READ if read else image.op.value,
            "ts_ms": seen_ms,
            "ts_us": _int64(seen_ms * 1_000),
            "ts_ns": _int64(seen_ms * 1_000_000),
        }
        value = schemas.value(payload)
        partition = self._partition(schemas.topic, image.token)
        yield KafkaRecord(schemas.topic, partition, key, value)
        if self._tombstones and image.op is ImageOp.DELETE:
            yield KafkaRecord(schemas.topic, partition, key, None)

    def _schemas_of(self, table: Table, topic: str, static: bool) -> _RowSchemas:
        named = id(table), topic, static
        schemas = self._known.get(named)
        if schemas is None:
            schemas = _RowSchemas(table, topic, self._writer, static=static)  # which keeps the table, and so its id
            self._known[named] = schemas
        return schemas

    def _source(self, change: Change, record_id: RecordId) -> dict[str, Any]:
        """The source block, and when the agent saw the change, in milliseconds."""
        written, source = record_times(change)[0], change.source
        seen_ms = written // 1_000 if source is None or not source.seen else source.seen
        snapshot = source is not None and source.origin is Origin.SNAPSHOT
        payload = {
            "version": _version(),
            "connector": CONNECTOR,
            "name": self._name,
            "ts_ms": written // 1_000,
            "snapshot": "true" if snapshot else "false",
            "db": change.table.keyspace,
            "sequence": None,
            "ts_us": written,
            "ts_ns": _int64(written * 1_000),
            "table": change.table.name,
            "host": None if source is None else source.host,
            "datacenter": None if source is None else source.datacenter,
            "segment": None if source is None else source.position.segment,
            "position": None if source is None else source.position.offset,
            "topic": record_id.topic,
            "partition": record_id.partition,
            "offset": record_id.offset,
        }
        return {"payload": payload, "seen": seen_ms}


class _RowSchemas:
    """The schemas of one definition's rows, or static rows, and what brings values into them."""

    def __init__(self, table: Table, topic: str, writer: Writer, *, static: bool) -> None:
        self._table = table
        self.topic = name = topic + STATIC if static else topic
        keys = table.partition_key if static else table.key
        columns = table.static if static else table.regular
        self._keys = [(column.name, converter(column.type)) for column in keys]
        self._columns = [(column.name, converter(column.type)) for column in columns]
        key = _struct(f"{name}.Key", _fields(keys, optional=False))
        row = [*_fields(keys, optional=False), *_fields(columns, optional=True)]
        envelope = _struct(
            f"{name}.Envelope",
            [
                {**_struct(f"{name}.Value", row, optional=True), "field": "before"},
                {**_struct(f"{name}.Value", row, optional=True), "field": "after"},
                {**_struct(f"io.debezium.connector.{CONNECTOR}.Source", _source_fields()), "field": "source"},
                {"type": "string", "optional": False, "field": "op"},
                *[{"type": "int64", "optional": True, "field": field} for field in ("ts_ms", "ts_us", "ts_ns")],
            ],
            version=2,
        )
        self.key, self.value = writer(name, "key", key), writer(name, "value", envelope)

    def row(self, key: Mapping[str, Any], values: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """A whole row: its key, and each column, null where there is no value."""
        if values is None:
            return None
        columns = {name: None if values.get(name) is None else turn(values[name]) for name, turn in self._columns}
        return {**key, **columns}

    def key_values(self, image: RowImage) -> dict[str, Any]:
        """The key of a row. Raises UnsupportedError as `DebeziumForm.events` does."""
        key = {name: None if image.key.get(name) is None else turn(image.key[name]) for name, turn in self._keys}
        missing = [name for name, value in key.items() if value is None]
        if missing:
            raise UnsupportedError(f"key column {', '.join(missing)} has no value that an event's key could have")
        return key


def converter(cql_type: CqlType) -> _Convert:
    """What makes a value of an image one of JsonConverter's: bytes in base 64, what is nested as JSON text.

    Floats that are no number become null: JsonConverter reads them as 0.
    """
    kind, logical = connect_type(cql_type)
    if logical == _JSON[1]:
        return compact_json
    if kind == "bytes":
        return lambda value: base64.b64encode(bytes.fromhex(value)).decode()
    if kind in ("float", "double"):
        return lambda value: None if isinstance(value, str) else value
    return lambda value: value


def _fields(columns: Sequence[Column], *, optional: bool) -> list[Schema]:
    return [_field(column, optional=optional) for column in columns]


def _field(column: Column, *, optional: bool) -> Schema:
    kind, logical = connect_type(column.type)
    named: Schema = {} if logical is None else {"name": logical, "version": 1}
    return {"type": kind, "optional": optional, **named, "field": column.name}


def _source_fields() -> list[Schema]:
    return [{"type": kind, "optional": optional, "field": field} for field, kind, optional in _SOURCE]


def _struct(name: str, fields: Sequence[Schema], *, optional: bool = False, version: int | None = None) -> Schema:
    numbered: Schema = {} if version is None else {"version": version}
    return {"type": "struct", "fields": list(fields), "optional": optional, "name": name, **numbered}


def _int64(value: int) -> int | None:
    """None for what write times of any size make of nanoseconds."""
    return value if -(2**63) <= value < 2**63 else None


def json_writer(topic: str, part: Part, schema: Schema) -> Write:  # noqa: ARG001 - a Writer's
    """Writes as JsonConverter with `schemas.enable`: the schema in each message."""
    text = compact_json(schema)
    return lambda payload: f'{{"schema":{text},"payload":{compact_json(payload)}}}'.encode()


@lru_cache(maxsize=1)
def _version() -> str:
    return version_of("tailrace")


__all__ = [
    "CONNECTOR",
    "DebeziumForm",
    "Schema",
    "Write",
    "Writer",
    "connect_type",
    "converter",
    "json_writer",
]
