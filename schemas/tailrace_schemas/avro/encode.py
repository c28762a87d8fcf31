"""Changes to framed Avro messages, by a plan made once per table shape."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass, field
from typing import Any

from fastavro import parse_schema, schemaless_writer

from tailrace_schemas.avro.convert import to_avro, to_formed, without_logical_types
from tailrace_schemas.avro.frames import FRAME
from tailrace_schemas.avro.names import avro_name, bound_name
from tailrace_schemas.avro.schema import KeyChoice, canonical_text, key_schema, schema_id, value_schema
from tailrace_schemas.change import TRUNCATED_AT, Bound, Cell, Change, record_times
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import split_key
from tailrace_schemas.forms import PLAIN_FORMS, ValueForms
from tailrace_schemas.position import Position
from tailrace_schemas.table import Column, Table

_Times = tuple[int, int | None, int | None]


@dataclass(slots=True)
class _Record:
    """The parts of one record that grow while its cells are walked."""

    times: _Times
    columns: dict[str, object] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    raw: list[dict[str, object]] = field(default_factory=list)
    cells: list[dict[str, object]] = field(default_factory=list)

    def keep(self, column: Column, path: bytes | None, where: str, data: bytes) -> None:
        """Keep bytes that the Avro value would not give back."""
        self.raw.append({"column": column.name, "path": path, "where": where, "bytes": data})

    def note_times(self, column: Column, path: bytes | None, times: _Times) -> None:
        """Note a cell's own times where they differ from the record's."""
        if times != self.times:
            written, ttl, expires = times
            self.cells.append({"column": column.name, "path": path, "written": written, "ttl": ttl, "expires": expires})


class Encoder:
    """Encodes the changes of one table shape.

    `schema_id` and `key_schema_id` are the 8 bytes that frame values and keys; `schema_text` and `key_schema_text`
    are what `<prefix>.schemas` publishes for them. `key_choice` says what Kafka keys are made of, `forms` how values
    stand in both.
    """

    def __init__(
        self, table: Table, prefix: str, key_choice: KeyChoice = "partition", forms: ValueForms = PLAIN_FORMS
    ) -> None:
        self.table = table
        self.prefix = prefix
        self.key_choice = key_choice
        self.forms = forms
        self._plain = forms == PLAIN_FORMS
        value, key = value_schema(table, prefix, forms), key_schema(table, prefix, key_choice, forms)
        self.schema_text = canonical_text(value)
        self.key_schema_text = canonical_text(key)
        self.schema_id = schema_id(self.schema_text)
        self.key_schema_id = schema_id(self.key_schema_text)
        self._value_schema = parse_schema(without_logical_types(value))
        self._key_schema = parse_schema(without_logical_types(key))
        self._bounds = {column.name: bound_name(column.name) for column in table.clustering}
        self._names = {column.name: avro_name(column.name) for column in (*table.key, *table.columns)}
        self._key_types = tuple(column.type for column in table.partition_key)
        # Cells of dropped columns are in a change, for its digest, and not in its record.
        self._live = frozenset(column.name_bytes for column in table.columns)

    def value(self, change: Change) -> bytes:
        """The framed message of a change: C3 01, the schema id, the Avro body."""
        return FRAME + self.schema_id + _written(self._value_schema, self.record(change))

    def key(self, change: Change) -> bytes | None:
        """The framed Kafka key: the partition key's columns, or the primary key's; None for truncate, which has no key.

        Columns of the primary key that the change does not have are null.
        """
        if change.key is None:
            return None
        values: tuple[bytes | None, ...] = split_key(self._key_types, change.key)
        if self.key_choice == "primary" and change.clustering is not None:
            values += change.clustering
        pairs = zip(self.table.key, values, strict=False)
        record = {
            self._names[column.name]: self._formed(column.type, data)[0] for column, data in pairs if data is not None
        }
        return FRAME + self.key_schema_id + _written(self._key_schema, record)

    def record(self, change: Change) -> dict[str, object]:
        """The change as the value that the Avro schema describes."""
        written, ttl, expires = times = record_times(change)
        out = _Record(times)
        key = self._key(change, out)
        self._edits(change, out)
        if change.upto is not None:
            out.raw.append(_truncated_at(change.upto, written))
        for cell in change.cells:
            if cell.column.name_bytes in self._live:
                out.note_times(cell.column, cell.path, (cell.written, cell.ttl, cell.expires))
                self._cell(cell, out)
        return {
            "op": change.op.value,
            "token": change.token,
            "written": written,
            "ttl": ttl,
            "expires": expires,
            "digest": change.digest,
            "key": key,
            "columns": out.columns,
            "deleted": out.deleted,
            "range": self._range(change, out),
            "raw": out.raw or None,
            "cells": out.cells or None,
            "source": self._source(change),
        }

    def _formed(self, cql_type: CqlType, data: bytes) -> tuple[object, bool]:
        return to_avro(cql_type, data) if self._plain else to_formed(cql_type, data, self.forms)

    def _key(self, change: Change, out: _Record) -> dict[str, object] | None:
        if change.key is None:
            return None
        values: tuple[bytes | None, ...] = split_key(self._key_types, change.key)
        if change.clustering is not None:
            values += change.clustering
        return self._named(self.table.key, values, out, "key")

    def _named(
        self, columns: tuple[Column, ...], values: tuple[bytes | None, ...], out: _Record, where: str
    ) -> dict[str, object]:
        named: dict[str, object] = {}
        names = self._names if where == "key" else self._bounds
        for column, data in zip(columns, values, strict=False):
            if data is not None:
                named[names[column.name]], exact = self._formed(column.type, data)
                if not exact:
                    out.keep(column, None, where, data)
        return named

    def _edits(self, change: Change, out: _Record) -> None:
        for deleted in change.column_deletions:
            if deleted.column.name_bytes in self._live:
                deletion = deleted.deletion
                self._edit(deleted.column, out)["deleted_at"] = deletion.written
                out.note_times(deleted.column, None, (deletion.written, None, deletion.local))

    def _edit(self, column: Column, out: _Record) -> dict[str, object]:
        edit = out.columns.get(self._names[column.name])
        if not isinstance(edit, dict):
            empty: object = {} if column.type.kind == "udt" else []
            edit = out.columns[self._names[column.name]] = {"deleted_at": None, "set": empty, "removed": []}
        return edit

    def _cell(self, cell: Cell, out: _Record) -> None:
        column = cell.column
        if cell.path is not None:
            self._element(cell, cell.path, self._edit(column, out), out)
        elif cell.value is None:
            out.deleted.append(column.name)
        else:
            out.columns[self._names[column.name]], exact = self._formed(column.type, cell.value)
            if not exact:
                out.keep(column, None, "value", cell.value)

    def _element(self, cell: Cell, path: bytes, edit: dict[str, object], out: _Record) -> None:
        column, args = cell.column, cell.column.type.args
        if column.type.kind == "udt":
            self._udt_field(cell, path, edit, out)
            return
        item: dict[str, object] = {"path": path}
        if column.type.kind != "list":
            item["key"] = self._formed(args[0], path)[0]
        if cell.value is None:
            _append(edit["removed"], item)
            return
        if column.type.kind == "set":
            if cell.value:
                out.keep(column, path, "value", cell.value)
        else:
            item["value"], exact = self._formed(args[-1], cell.value)
            if not exact:
                out.keep(column, path, "value", cell.value)
        _append(edit["set"], item)

    def _udt_field(self, cell: Cell, path: bytes, edit: dict[str, object], out: _Record) -> None:
        column = cell.column
        index = int.from_bytes(path, "big")
        if len(path) != 2 or index >= len(column.type.fields):
            # A field that this definition does not know: its bytes, or for a tombstone its path, are kept as they are.
            if cell.value is None:
                out.keep(column, path, "key", path)
            else:
                out.keep(column, path, "value", cell.value)
            return
        name = column.type.fields[index]
        if cell.value is None:
            _append(edit["removed"], name)
            return
        value, exact = self._formed(column.type.args[index], cell.value)
        fields = edit["set"]
        if isinstance(fields, dict):
            fields[avro_name(name)] = value
        if not exact:
            out.keep(column, path, "value", cell.value)

    def _range(self, change: Change, out: _Record) -> dict[str, object] | None:
        if change.start is None or change.end is None:
            return None
        return {"start": self._bound(change.start, out, "start"), "end": self._bound(change.end, out, "end")}

    def _bound(self, bound: Bound, out: _Record, where: str) -> dict[str, object]:
        named = self._named(self.table.clustering, bound.values, out, where)
        return {**named, "count": len(bound.values), "inclusive": bound.inclusive}

    def _source(self, change: Change) -> dict[str, object]:
        source = change.source
        if source is None:
            raise ValueError(f"{self.table}: a change without a source cannot be published")
        return {
            "host": source.host,
            "datacenter": source.datacenter,
            "epoch": source.position.epoch,
            "segment": source.position.segment,
            "offset": source.position.offset,
            "index": source.index,
            "count": source.count,
            "origin": source.origin.value,
            "durable": source.durable,
            "seen": source.seen,
            "flags": source.flags,
        }


def _truncated_at(upto: Position, written: int) -> dict[str, object]:
    """A truncation as `truncated_at` of system.local has it: segment, offset, milliseconds."""
    octets = struct.pack(">qiq", upto.segment, upto.offset, written // 1000)
    return {"column": TRUNCATED_AT, "path": None, "where": "value", "bytes": octets}


def _append(items: object, item: object) -> None:
    if isinstance(items, list):
        items.append(item)


def _written(schema: Any, record: dict[str, object]) -> bytes:
    buffer = io.BytesIO()
    schemaless_writer(buffer, schema, record)
    return buffer.getvalue()
