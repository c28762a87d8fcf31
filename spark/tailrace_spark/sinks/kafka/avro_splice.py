"""A change's outgoing Avro cut out of the message that it was read from: no value is decoded. It is compiled.

The outward schema of a table has logical types, and says the same bytes (`value_schema`). So the body of a message is
the body of its outgoing record, with the record's place behind it; and its key's first fields are the outgoing key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tailrace_schemas.avro.convert import YEARS
from tailrace_schemas.avro.frames import frame
from tailrace_schemas.avro.schema import KeyChoice, canonical_text, schema_id, value_schema
from tailrace_schemas.change import Change
from tailrace_schemas.cql.types import CqlType, parts
from tailrace_schemas.cql.values import split_key
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.streams import Assignment
from tailrace_schemas.table import Column, Table
from tailrace_spark.batch.delivery import RecordId

_VARINT: Final = -1
_COUNTED: Final = -2
_UNKNOWN: Final = -3
# Bytes of a value of each type in Avro (docs/contracts.md section 3): a number of them, or how its end is found.
_WIDTHS: Final = {
    "boolean": 1, "float": 4, "double": 8,
    "tinyint": _VARINT, "smallint": _VARINT, "int": _VARINT, "bigint": _VARINT,
    "timestamp": _VARINT, "date": _VARINT, "time": _VARINT,
    "text": _COUNTED, "ascii": _COUNTED, "blob": _COUNTED, "uuid": _COUNTED, "timeuuid": _COUNTED, "inet": _COUNTED,
    "varint": _COUNTED, "decimal": _COUNTED,
}  # fmt: skip
_DIGEST: Final = 16
_NULL: Final = b"\x00"
_SECOND: Final = b"\x02"
"""The branches of a union of null and one more type."""
_DATE_ZERO: Final = 1 << 31
"""A date's bytes are days since the epoch, more by this."""


class Splice:
    """Cuts out of messages of one definition. Owned by one thread."""

    def __init__(self, table: Table, prefix: str, key: KeyChoice) -> None:
        self._head = frame(schema_id(canonical_text(value_schema(table, prefix))))
        fields = table.partition_key if key == "partition" else table.key
        self._widths = [_WIDTHS.get(column.type.kind, _UNKNOWN) for column in fields]
        self._knows_key = _UNKNOWN not in self._widths
        self._partition = _dated(table.partition_key)
        self._clustering = _dated(table.clustering)
        self._columns = {column.name_bytes: column.type.kind for column in table.columns if is_dated(column.type)}
        self._key_types = tuple(column.type for column in table.partition_key)
        self._knows_dates = all(
            column.type.kind in YEARS for column in (*table.key, *table.columns) if is_dated(column.type)
        )
        self._of_topic: tuple[str, int, bytes] = ("", -1, b"")

    def knows(self, message: bytes, change: Change) -> bool:
        """Whether the message is of this definition's plain schema, and has no timestamp that readers cannot take.

        Where it is not certain, it says no.
        """
        if not message.startswith(self._head) or not self._knows_key or not self._knows_dates:
            return False
        if self._partition and change.key is not None and not self._key_within(change.key):
            return False
        if self._clustering:
            if change.start is not None or change.end is not None:
                return False
            clustering = change.clustering
            for index, kind in self._clustering:
                if clustering is not None and index < len(clustering) and not _within(kind, clustering[index]):
                    return False
        if self._columns:
            for cell in change.cells:
                kind = self._columns.get(cell.column.name_bytes, "")
                if kind and not _within(kind, cell.value):
                    return False
        return True

    def _key_within(self, key: bytes) -> bool:
        try:
            values = split_key(self._key_types, key)
        except DecodeError:
            return False
        return all(_within(kind, values[index]) for index, kind in self._partition)

    def key(self, message: bytes) -> bytes | None:
        """The Avro body of the key; None for a truncation. Of a message that it knows."""
        offset = _varint_end(message, _varint_end(message, _varint_end(message, len(self._head))))  # op, token, written
        offset = _union_end(message, _union_end(message, offset)) + _DIGEST  # ttl, expires
        if message[offset : offset + 1] == _NULL:
            return None
        start = offset = offset + 1
        for width in self._widths:
            offset = _field_end(message, offset, width)
        return message[start:offset]

    def value(self, message: bytes, record_id: RecordId, assignment: Assignment | None) -> bytes:
        """The Avro body of the outgoing record. Of a message that it knows."""
        topic, partition, text = self._of_topic
        if topic != record_id.topic or partition != record_id.partition:
            text = _counted(record_id.topic.encode()) + _varint(record_id.partition)
            self._of_topic = record_id.topic, record_id.partition, text
        schema = _SECOND + _counted(record_id.schema_id) if record_id.schema_id else _NULL
        stream = (
            _NULL + _NULL
            if assignment is None
            else _SECOND + _varint(assignment[0]) + _SECOND + _counted(assignment[1])
        )
        return message[len(self._head) :] + text + _varint(record_id.offset) + schema + stream


def is_dated(cql_type: CqlType) -> bool:
    """Whether there are timestamps or dates in a type's values."""
    return any(nested.kind in YEARS for nested in parts((cql_type,)))


def _dated(columns: Sequence[Column]) -> list[tuple[int, str]]:
    """Columns that have a dated type: their index and kind."""
    return [(index, column.type.kind) for index, column in enumerate(columns) if is_dated(column.type)]


def _within(kind: str, data: bytes | None) -> bool:
    """Whether a timestamp or date is within the years that readers have, or null."""
    if data is None:
        return True
    if kind == "date":
        if len(data) != 4:
            return False
        value = int.from_bytes(data, "big") - _DATE_ZERO
    else:
        if len(data) != 8:
            return False
        value = int.from_bytes(data, "big", signed=True)
    first, last = YEARS[kind]
    return first <= value <= last


def _field_end(message: bytes, offset: int, width: int) -> int:
    """Where a nullable field ends that begins at the offset."""
    if message[offset] == 0:
        return offset + 1
    offset += 1
    if width == _VARINT:
        return _varint_end(message, offset)
    if width != _COUNTED:
        return offset + width
    length, shift = 0, 0
    while True:
        byte = message[offset]
        offset += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return offset + (length >> 1)
        shift += 7


def _union_end(message: bytes, offset: int) -> int:
    """Where a nullable number ends."""
    return offset + 1 if message[offset] == 0 else _varint_end(message, offset + 1)


def _varint_end(message: bytes, offset: int) -> int:
    while message[offset] >= 0x80:
        offset += 1
    return offset + 1


def _counted(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    """An int or long of Avro: zigzag, seven bits a byte, the lowest first."""
    rest = number << 1 if number >= 0 else ((-number) << 1) - 1
    if rest < 0x80:
        return bytes((rest,))
    data = bytearray()
    while rest >= 0x80:
        data.append((rest & 0x7F) | 0x80)
        rest >>= 7
    data.append(rest)
    return bytes(data)
