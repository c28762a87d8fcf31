"""Changes of one definition to JSON text, from Cassandra's bytes: a plan made once, no object for a cell.

It writes what `OutgoingRecord.value` says, byte for byte, for changes that are plain. They are of one row or partition,
with simple cells whose bytes the values give back. Of others it gives None, and the object is made. It is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from json.encoder import encode_basestring
from math import isfinite
from typing import Final

from tailrace_schemas.avro.convert import to_avro
from tailrace_schemas.avro.names import avro_name
from tailrace_schemas.change import Cell, Change, Source, record_times
from tailrace_schemas.change_json import compact_json
from tailrace_schemas.cql.json_value import plain
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import split_key
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.streams import Assignment
from tailrace_schemas.table import Column, Table
from tailrace_spark.batch.delivery import RecordId

Format = Callable[[bytes], str | None]
"""The JSON text of a value; None where the bytes are no value, or not those that the value gives back."""

_INTEGERS: Final = {"tinyint": 1, "smallint": 2, "int": 4, "bigint": 8, "timestamp": 8}


def formatter(cql_type: CqlType) -> Format:
    """What writes the values of a type."""
    kind = cql_type.kind
    size = _INTEGERS.get(kind)
    if size is not None:
        return _Integers(size).text
    if kind == "text":
        return _text
    if kind == "ascii":
        return _ascii
    if kind == "boolean":
        return _boolean
    if kind == "blob":
        return _blob
    if kind == "uuid":
        return _uuid
    return _Values(cql_type).text


class _Integers:
    """Numbers of so many bytes."""

    def __init__(self, size: int) -> None:
        self._size = size

    def text(self, data: bytes) -> str | None:
        return str(int.from_bytes(data, "big", signed=True)) if len(data) == self._size else None


class _Values:
    """Values of any type, by their plain form."""

    def __init__(self, cql_type: CqlType) -> None:
        self._type = cql_type

    def text(self, data: bytes) -> str | None:
        value, exact = to_avro(self._type, data)
        if not exact:
            return None
        if isinstance(value, float) and isfinite(value):
            return repr(value)
        return compact_json(plain(value))


def _text(data: bytes) -> str | None:
    try:
        return encode_basestring(data.decode())
    except UnicodeDecodeError:
        return None


def _ascii(data: bytes) -> str | None:
    return encode_basestring(data.decode("ascii")) if data.isascii() else None


def _boolean(data: bytes) -> str | None:
    # Cassandra writes 1 and 0, and reads any other byte as true (BooleanSerializer): the value does not give it back.
    return {b"\x01": "true", b"\x00": "false"}.get(data)


def _blob(data: bytes) -> str | None:
    return f'"{data.hex()}"'


def _uuid(data: bytes) -> str | None:
    if len(data) != 16:
        return None
    digits = data.hex()
    return f'"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"'


class _ColumnText:
    """How one column is written: `name` as JSON, `head` with the colon behind it."""

    def __init__(self, column: Column) -> None:
        self.name = encode_basestring(column.name)
        self.head = encode_basestring(avro_name(column.name)) + ":"
        self.format = formatter(column.type)


class JsonPlan:
    """Writes the changes of one definition. Owned by one thread."""

    def __init__(self, table: Table) -> None:
        self._table = '{"table":' + encode_basestring(str(table)) + ',"topic":'
        self._keys = [_ColumnText(column) for column in table.key]
        self._partition_columns = len(table.partition_key)
        self._key_types = tuple(column.type for column in table.partition_key)
        self._columns = {
            column.name_bytes: _ColumnText(column) for column in table.columns if not column.type.multicell
        }
        # The same for many changes in a row.
        self._of_partition: tuple[str, int, str] = ("", -1, "")
        self._of_schema: tuple[bytes, str] = (b"", "null")
        self._of_host: tuple[str, str, str] = ("", "", "")

    def text(self, record_id: RecordId, change: Change, assignment: Assignment | None) -> str | None:
        """The change's JSON object; None where it is not plain. Raises nothing else."""
        source = change.source
        if source is None or change.key is None or change.column_deletions or change.start is not None:
            return None
        marker, deletion = change.marker, change.deletion
        if marker is not None:
            written, ttl, expires = marker.written, marker.ttl, marker.expires
            if deletion is not None:
                return None
        elif deletion is not None:
            written, ttl, expires = deletion.written, None, deletion.local
        elif change.cells:
            written, ttl, expires = _times_of_cells(change)
        else:
            return None
        key = self._key(change, primary=True)
        columns = self._cells(change.cells, written, ttl, expires)
        if key is None or columns is None:
            return None
        return (
            f'{self._place(record_id)}{_stream(assignment)},"op":"{change.op.value}","token":{change.token},'
            f'"written":{written},"ttl":{_number(ttl)},"expires":{_number(expires)},"digest":"{change.digest.hex()}",'
            f'"key":{key},{columns},"source":{self._source(source)}}}'
        )

    def key(self, change: Change, *, primary: bool) -> str | None:
        """The partition key's columns, or with `primary` the primary key's, as a JSON object; None as for `text`."""
        return None if change.key is None else self._key(change, primary=primary)

    def _key(self, change: Change, *, primary: bool) -> str | None:
        if change.key is None:
            return None
        try:
            values: Sequence[bytes | None] = split_key(self._key_types, change.key)
        except DecodeError:
            return None
        if primary and change.clustering is not None:
            values = (*values, *change.clustering)
        parts: list[str] = []
        for index, data in enumerate(values):
            if data is None:
                continue
            column = self._keys[index]
            value = column.format(data)
            if value is None:
                return None
            parts.append(column.head + value)
        return "{" + ",".join(parts) + "}"

    def _cells(self, cells: tuple[Cell, ...], written: int, ttl: int | None, expires: int | None) -> str | None:
        """From `columns` to `cells`, which has the cells of other times than the record's."""
        parts: list[str] = []
        deleted: list[str] = []
        dated: list[str] = []
        for cell in cells:
            column = self._columns.get(cell.column.name_bytes)
            if column is None or cell.path is not None:
                return None
            if cell.written != written or cell.ttl != ttl or cell.expires != expires:
                dated.append(
                    f'{{"column":{column.name},"path":null,"written":{cell.written},"ttl":{_number(cell.ttl)},'
                    f'"expires":{_number(cell.expires)}}}'
                )
            if cell.value is None:
                deleted.append(column.name)
                continue
            value = column.format(cell.value)
            if value is None:
                return None
            parts.append(column.head + value)
        if len(parts) + len(deleted) > 1 and not self._differ(cells):
            return None
        times = f"[{','.join(dated)}]" if dated else "null"
        return (
            f'"columns":{{{",".join(parts)}}},"deleted":[{",".join(deleted)}],"range":null,"raw":null,"cells":{times}'
        )

    def _differ(self, cells: tuple[Cell, ...]) -> bool:
        """Whether each cell is of another column, as they are in every mutation."""
        return len({cell.column.name_bytes for cell in cells}) == len(cells)

    def _place(self, record_id: RecordId) -> str:
        topic, partition, text = self._of_partition
        if topic != record_id.topic or partition != record_id.partition:
            text = f'{self._table}{encode_basestring(record_id.topic)},"partition":{record_id.partition},"offset":'
            self._of_partition = record_id.topic, record_id.partition, text
        schema_id, schema = self._of_schema
        if schema_id != record_id.schema_id:
            schema = f'"{record_id.schema_id.hex()}"'
            self._of_schema = record_id.schema_id, schema
        return f'{text}{record_id.offset},"schema":{schema},'

    def _source(self, source: Source) -> str:
        host, datacenter, text = self._of_host
        if host != source.host or datacenter != source.datacenter:
            names = encode_basestring(source.host), encode_basestring(source.datacenter)
            text = f'{{"host":{names[0]},"datacenter":{names[1]},"epoch":'
            self._of_host = source.host, source.datacenter, text
        position, durable = source.position, "true" if source.durable else "false"
        return (
            f'{text}{position.epoch},"segment":{position.segment},"offset":{position.offset},"index":{source.index},'
            f'"count":{source.count},"origin":"{source.origin.value}","durable":{durable},'
            f'"seen":{source.seen},"flags":{source.flags}}}'
        )


def _times_of_cells(change: Change) -> tuple[int, int | None, int | None]:
    """As `record_times`, of a change without a marker and a deletion."""
    first = change.cells[0]
    for cell in change.cells:
        if cell.written != first.written or cell.ttl != first.ttl or cell.expires != first.expires:
            return record_times(change)
    return first.written, first.ttl, first.expires


def _stream(assignment: Assignment | None) -> str:
    if assignment is None:
        return '"generation":null,"stream_id":null'
    return f'"generation":{assignment[0]},"stream_id":"{assignment[1].hex()}"'


def _number(value: int | None) -> str:
    return "null" if value is None else str(value)
