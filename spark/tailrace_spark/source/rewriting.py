"""Messages of any writer's schema brought to one reader's, for the typed columns of `changes`."""

from __future__ import annotations

import io
import json
import logging
from functools import cache
from typing import Any

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.read import SchemaResolutionError

from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.avro.convert import plain_of
from tailrace_schemas.avro.decode import reader_of
from tailrace_schemas.avro.frames import body_at, frame
from tailrace_schemas.avro.names import avro_name, bound_name
from tailrace_schemas.avro.schema import schema_id
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.table import Table
from tailrace_schemas.table_json import table_from_json

log = logging.getLogger("tailrace_spark")


def rewritten(message: bytes | None, entry: SchemaEntry | None, reader: str, unfit: frozenset[str]) -> bytes | None:
    """The message under the reader's schema, which is given as its canonical text, without the `unfit` columns.

    None where it cannot be read, or where nothing is known of its own schema.
    """
    if message is None or entry is None:
        return None
    try:
        plain = io.BytesIO(_plain_body(message, entry))
        record: Any = schemaless_reader(plain, _plain(entry.avro), None if unfit else _parsed(reader))
        for name in unfit:
            for values in filter(None, (record["key"], record["columns"])):
                values.pop(avro_name(name), None)
            for bound in (record["range"] or {}).values():
                bound.pop(bound_name(name), None)
        body = io.BytesIO()
        schemaless_writer(body, _parsed(reader), record)
    except (SchemaResolutionError, ValueError, EOFError, LookupError, TypeError, DecodeError) as error:
        log.warning(
            "a message of schema %s does not fit the table's definition and goes to the dead letters: %s",
            entry.schema_id.hex(),
            error,
        )
        return None
    return frame(schema_id(reader)) + body.getvalue()


@cache
def unfit_columns(table: Table, definition: str) -> frozenset[str]:
    """The columns of a writer's definition that have another type in the reader's, which is given as JSON."""
    reader = table_from_json(json.loads(definition))
    types = {column.name: column.type for column in (*reader.key, *reader.columns)}
    columns = (*table.key, *table.columns)
    return frozenset(column.name for column in columns if not _fits(column.type, types.get(column.name, column.type)))


def _fits(written: CqlType, read: CqlType) -> bool:
    """Whether both are one type, of which a user type may have other fields."""
    if (written.kind, written.multicell, written.name) != (read.kind, read.multicell, read.name):
        return False
    if written.kind == "udt":
        types = dict(zip(read.fields, read.args, strict=True))
        fields = zip(written.fields, written.args, strict=True)
        pairs = [(cql_type, types.get(name, cql_type)) for name, cql_type in fields]
    elif (len(written.args), written.dimension) != (len(read.args), read.dimension):
        return False
    else:
        pairs = list(zip(written.args, read.args, strict=True))
    return all(_fits(*pair) for pair in pairs)


def _plain_body(message: bytes, entry: SchemaEntry) -> bytes:
    """The Avro of a message, with every value in its plain form."""
    form = reader_of(entry)
    if form.plain:
        return message[body_at(message) :]
    body = io.BytesIO()
    schemaless_writer(body, _plain(entry.avro), form.record(message))
    return body.getvalue()


@cache
def _parsed(text: str) -> Any:
    return parse_schema(json.loads(text))


@cache
def _plain(text: str) -> Any:
    """A writer's schema, with every form a plain one."""
    return parse_schema(plain_of(json.loads(text))[0])
