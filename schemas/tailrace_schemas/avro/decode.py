"""Framed Avro messages back to changes: Cassandra's bytes re-made from the values, `raw` honoured."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from fastavro import parse_schema, schemaless_reader

from tailrace_schemas.avro.change_plan import ChangePlan
from tailrace_schemas.avro.convert import encoder_of, plain_of, without_logical_types
from tailrace_schemas.avro.frames import body_at, message_schema_id
from tailrace_schemas.avro.names import avro_name, bound_name
from tailrace_schemas.avro.registry import SchemaEntry, UnknownSchemaError
from tailrace_schemas.avro.schema import PREFIX_SCHEMA, layout, value_schema
from tailrace_schemas.change import (
    EXPIRED_TTL,
    TRUNCATED_AT,
    Bound,
    Cell,
    Change,
    ColumnDeletion,
    Deletion,
    Marker,
    Op,
    Origin,
    Source,
)
from tailrace_schemas.cql.values import join_key
from tailrace_schemas.errors import CorruptError, TruncatedError
from tailrace_schemas.position import Position
from tailrace_schemas.table import Column, Table

_PREFIX: Final = parse_schema(json.loads(PREFIX_SCHEMA))

_OPS: Final = {op.value: op for op in Op}
_ORIGINS: Final = {origin.value: origin for origin in Origin}

_Times = tuple[int, int | None, int | None]
_RawKey = tuple[str, bytes | None, str]


# What bytes, or a schema, that are not what they say make the code raise that takes them for it.
_NONSENSE: Final = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
    struct.error,
)


def written_of(message: bytes) -> int:
    """The write time of a framed message, in microseconds; its fields stand first in a record of any table.

    Raises DecodeError subclasses for bytes that are none.
    """
    buffer = io.BytesIO(message)
    buffer.seek(body_at(message))
    try:
        head = schemaless_reader(buffer, _PREFIX, None)
    except (EOFError, ValueError, IndexError, OverflowError) as error:
        raise TruncatedError("the record ends early") from error
    written: int = head["written"]  # type: ignore[index, call-overload, assignment]  # a record is a dict
    return written


def decode(message: bytes, schemas: Mapping[bytes, SchemaEntry]) -> Change:
    """The change that a framed message carries, as the table's writer knew it.

    Cells come in the order of the record's columns, live elements before removed ones. Raises UnknownSchemaError,
    and DecodeError subclasses for bytes that are not a change of that schema.
    """
    identity = message_schema_id(message)
    entry = schemas.get(identity)
    if entry is None:
        raise UnknownSchemaError(identity.hex())
    return reader_of(entry).decode(message)


class _ColumnReader:
    """Makes Cassandra's bytes of one column's values, which stand under a name of its own in the record."""

    def __init__(self, column: Column, name: str) -> None:
        self.column = column
        self.name = name
        self.multicell = column.type.multicell
        self._encode: Callable[[object], bytes] | None = None
        self._encode_element: Callable[[object], bytes] | None = None

    def encode(self, value: object) -> bytes:
        """The bytes of a value, which is not null."""
        if self._encode is None:
            self._encode = encoder_of(self.column.type)
        return self._encode(value)

    def encode_element(self, value: object) -> bytes:
        """The bytes of the value of an element of a collection."""
        if self._encode_element is None:
            self._encode_element = encoder_of(self.column.type.args[-1])
        return self._encode_element(value)


class Reader:
    """Decodes the messages of one writer schema, whatever forms its values have.

    `plain` tells that they are plain; `plain_schema` is the schema of the records, in which all of them are.
    """

    def __init__(self, entry: SchemaEntry) -> None:
        self.entry = entry
        try:
            schema = json.loads(entry.avro)
            self.plain_schema, self._to_plain = plain_of(schema)
            self._schema = parse_schema(without_logical_types(schema))
            self.plain = self.plain_schema == schema
        except Exception as error:  # fastavro raises whatever its parser meets in what is no schema
            raise CorruptError(
                f"{entry.topic}: schema {entry.schema_id.hex()} is no Avro: {type(error).__name__}: {str(error)[:200]}"
            ) from error
        table = entry.table
        self._columns = [_ColumnReader(column, avro_name(column.name)) for column in table.columns]
        self._clustering = [_ColumnReader(column, avro_name(column.name)) for column in table.clustering]
        self._bounds = [_ColumnReader(column, bound_name(column.name)) for column in table.clustering]
        self._partition = [_ColumnReader(column, avro_name(column.name)) for column in table.partition_key]
        self._key_types = tuple(column.type for column in table.partition_key)
        self._plan = ChangePlan(table) if _is_laid_out_as_ours(schema, table) else None

    def decode(self, message: bytes) -> Change:
        """The change of a framed message; raises DecodeError where the bytes are not one of this schema."""
        if self._plan is not None:
            change = self._plan.change(message, body_at(message))
            if change is not None:
                return change
        return self.change(self.record(message))

    def record(self, message: bytes) -> dict[str, Any]:
        """The Avro record of a framed message, as plain values; DecodeError where the bytes are not one."""
        buffer = io.BytesIO(message)
        buffer.seek(body_at(message))
        try:
            record: Any = schemaless_reader(buffer, self._schema, None)
            if self._to_plain is not None:
                record = self._to_plain(record)
        except EOFError as error:
            raise TruncatedError(f"{self.entry.topic}: the record ends early") from error
        except (*_NONSENSE, MemoryError) as error:
            raise CorruptError(f"{self.entry.topic}: the record is not of its schema: {error}") from error
        if not isinstance(record, dict):
            raise CorruptError(f"{self.entry.topic}: the message is a {type(record).__name__}, not a record")
        return record

    def change(self, record: dict[str, Any]) -> Change:
        """The change that a record describes; DecodeError where its values are not what their columns' types hold."""
        try:
            return self._change(record)
        except _NONSENSE as error:
            raise CorruptError(
                f"{self.entry.topic}: a value is not of its column's type: {type(error).__name__}: {str(error)[:200]}"
            ) from error

    def _change(self, record: dict[str, Any]) -> Change:
        table = self.entry.table
        raw = {(item["column"], item["path"], item["where"]): item["bytes"] for item in record["raw"] or ()}
        own_times = (record["written"], record["ttl"], record["expires"])
        times = {
            (item["column"], item["path"]): (item["written"], item["ttl"], item["expires"])
            for item in record["cells"] or ()
        }
        op = _OPS[record["op"]]
        clustering = self._named(self._clustering, record["key"], raw, "key")
        # By identity: an enum's hash is Python's own code, and takes longer than all of these.
        is_rowless = op is Op.DELETE_PARTITION or op is Op.DELETE_RANGE or op is Op.TRUNCATE
        static = not is_rowless and bool(table.clustering) and all(value is None for value in clustering)
        expired = op is Op.DELETE and record["ttl"] == EXPIRED_TTL
        deletes = is_rowless or (op is Op.DELETE and not expired)
        cells, deletions = self._cells(record, raw, own_times, times)
        # A row that SELECT gave without a cell that lives is there by its marker.
        inserts = expired or op is Op.INSERT or (op is Op.READ and not (static or cells or deletions))
        start, end = self._ends(record["range"], raw)
        source = _source(record["source"])
        return Change(
            op=op,
            table=table,
            token=record["token"],
            key=self._key(record["key"], raw),
            clustering=None if is_rowless or static else clustering,
            static=static,
            marker=Marker(*own_times) if inserts else None,
            deletion=Deletion(own_times[0], own_times[2] or 0) if deletes else None,
            cells=tuple(cells),
            column_deletions=tuple(deletions),
            start=start,
            end=end,
            digest=record["digest"],
            source=source,
            upto=_upto(raw, source) if op is Op.TRUNCATE else None,
        )

    def _key(self, key: dict[str, Any] | None, raw: dict[_RawKey, bytes]) -> bytes | None:
        if key is None:
            return None
        values = self._named(self._partition, key, raw, "key")
        if any(value is None for value in values):
            raise CorruptError(f"{self.entry.topic}: a partition key column is null")
        return join_key(self._key_types, tuple(value for value in values if value is not None))

    def _named(
        self, columns: list[_ColumnReader], record: dict[str, Any] | None, raw: dict[_RawKey, bytes], where: str
    ) -> tuple[bytes | None, ...]:
        values: list[bytes | None] = []
        for reader in columns:
            raw_bytes = raw.get((reader.column.name, None, where)) if raw else None
            value = None if record is None else record[reader.name]
            values.append(raw_bytes if raw_bytes is not None or value is None else reader.encode(value))
        return tuple(values)

    def _cells(
        self,
        record: dict[str, Any],
        raw: dict[_RawKey, bytes],
        own: _Times,
        times: dict[tuple[str, bytes | None], _Times],
    ) -> tuple[list[Cell], list[ColumnDeletion]]:
        cells: list[Cell] = []
        deletions: list[ColumnDeletion] = []
        values, deleted = record["columns"], record["deleted"]
        for reader in self._columns:
            column, value = reader.column, values[reader.name]
            if reader.multicell:
                if value is None:
                    continue
                if value["deleted_at"] is not None:
                    _, _, local = times.get((column.name, None), own)
                    deletions.append(ColumnDeletion(column, Deletion(value["deleted_at"], local or 0)))
                for path, data in _elements(reader, value, raw):
                    cells.append(Cell(column, path, *times.get((column.name, path), own), data))
                continue
            data = raw.get((column.name, None, "value")) if raw else None
            if data is None and value is not None:
                data = reader.encode(value)
            if data is not None or column.name in deleted:
                written, ttl, expires = times.get((column.name, None), own) if times else own
                cells.append(Cell(column, None, written, ttl, expires, data))
        return cells, deletions

    def _ends(self, ends: dict[str, Any] | None, raw: dict[_RawKey, bytes]) -> tuple[Bound | None, Bound | None]:
        if ends is None:
            return None, None
        return self._bound(ends["start"], raw, "start"), self._bound(ends["end"], raw, "end")

    def _bound(self, bound: dict[str, Any], raw: dict[_RawKey, bytes], where: str) -> Bound:
        values = self._named(self._bounds, bound, raw, where)
        return Bound(values[: bound["count"]], bound["inclusive"])


def _is_laid_out_as_ours(schema: object, table: Table) -> bool:
    """Whether a writer's records have the bytes that ours have: those of other forms do not."""
    return layout(schema) == layout(value_schema(table, ""))


def _elements(
    reader: _ColumnReader, edit: dict[str, Any], raw: dict[_RawKey, bytes]
) -> list[tuple[bytes, bytes | None]]:
    """(path, bytes or None for a removed one) of every cell of a multi-cell column's edit."""
    column = reader.column
    kind = column.type.kind
    if kind == "udt":
        return _udt_elements(column, edit, raw)
    elements: list[tuple[bytes, bytes | None]] = []
    for item in edit["set"]:
        data = raw.get((column.name, item["path"], "value"))
        if data is None:
            data = b"" if kind == "set" else reader.encode_element(item["value"])
        elements.append((item["path"], data))
    elements += [(item["path"], None) for item in edit["removed"]]
    return elements


def _udt_elements(column: Column, edit: dict[str, Any], raw: dict[_RawKey, bytes]) -> list[tuple[bytes, bytes | None]]:
    fields: dict[bytes, bytes | None] = {}
    for index, name in enumerate(column.type.fields):
        path = index.to_bytes(2, "big")
        value = edit["set"][avro_name(name)]
        if value is not None:
            fields[path] = encoder_of(column.type.args[index])(value)
        elif name in edit["removed"]:
            fields[path] = None
    for (name, kept_path, raw_kind), data in raw.items():
        if name == column.name and kept_path is not None:
            fields[kept_path] = data if raw_kind == "value" else None
    return list(fields.items())


def _source(record: dict[str, Any]) -> Source:
    return Source(
        host=record["host"],
        datacenter=record["datacenter"],
        position=Position(record["epoch"], record["segment"], record["offset"]),
        index=record["index"],
        count=record["count"],
        origin=_ORIGINS[record["origin"]],
        durable=record["durable"],
        seen=record["seen"],
        flags=record["flags"],
    )


def _upto(raw: dict[_RawKey, bytes], source: Source) -> Position | None:
    """Up to where a truncation went; None: unknown."""
    octets = raw.get((TRUNCATED_AT, None, "value"))
    if octets is None:
        return None
    segment, offset, _ = struct.unpack(">qiq", octets)
    return Position(source.position.epoch, segment, offset)


# Kept by topic and text: hashing a whole table for every message would cost more than decoding it.
_READERS: Final[dict[tuple[str, str], Reader]] = {}


def reader_of(entry: SchemaEntry) -> Reader:
    """The reader of a writer schema; made once and kept."""
    key = (entry.topic, entry.avro)
    reader = _READERS.get(key)
    if reader is None:
        reader = _READERS[key] = Reader(entry)
    return reader
