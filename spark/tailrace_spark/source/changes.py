"""`changes`: the DataFrame that Spark users get, of all tables or of one with its typed columns."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial, reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.read import SchemaResolutionError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from tailrace_common.properties.passthrough import Scalar
from tailrace_common.settings import Settings
from tailrace_common.topics import SchemaReader
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.avro.convert import plain_of
from tailrace_schemas.avro.decode import reader_of
from tailrace_schemas.avro.frames import BODY_SQL, body_at, frame
from tailrace_schemas.avro.names import avro_name, bound_name
from tailrace_schemas.avro.schema import canonical_text, schema_id, value_schema
from tailrace_schemas.cql.types import CqlType, require_leaves
from tailrace_schemas.errors import DecodeError, ServiceError, SettingsError
from tailrace_schemas.table import Column, Table
from tailrace_spark.merge.table_record import merge_definitions
from tailrace_spark.source.kafka import PERMISSIVE, one_copy, one_copy_by_event_time, read_messages, with_head
from tailrace_spark.streams.assign import COLUMNS, LATENESS_SECONDS, assigned, begin_task, generations_of_task

_RECORD: Final = ("key", "columns", "deleted", "raw", "cells", "range", "source")
log = logging.getLogger("tailrace_spark")


def changes(
    spark: SparkSession,
    settings: Settings,
    table: str | None = None,
    *,
    options: Mapping[str, str] | None = None,
    lateness_seconds: int = LATENESS_SECONDS,
    one_copy_seconds: float | None = None,
    one_copy_watermark: str | None = None,
) -> DataFrame:
    """A stream of changes (docs/contracts.md 7): one row per record of Kafka, as often as there are copies.

    All tables have the same columns. Of the change: op, token, written (microseconds), ttl, expires (seconds), digest.
    Of its record: keyspace, table, topic, partition, offset, schema_id, value (the framed message).
    Of its stream: stream_id (16 bytes), generation (milliseconds), marks.
    A record that is no change has nulls, and the mark `undecodable`.

    With `table` ("keyspace.table") there are, instead of `value`: key, columns, deleted, raw, cells, range, source.
    They are structs of docs/contracts.md 3, whatever definition the writer had; values are plain, whatever its [avro]
    was. A column of another type in an earlier table of that name, which was dropped, is null in its records. A varint
    or decimal is an exact string, as Spark's decimals end at 38 digits: cast it, as in `.cast("decimal(38, 9)")`.
    Columns added after this call are seen by the next one. Needs the table's schema in `<prefix>.schemas`, else raises
    ServiceError.

    `options` are those of Spark's Kafka source, such as startingTimestamp, maxOffsetsPerTrigger or failOnDataLoss.
    `one_copy_seconds` leaves out copies of a change that come within that time after its first
    (tailrace_spark.source.kafka). Such a query keeps state, and has a watermark of ours: Spark allows no other.
    `one_copy_watermark` ("1 hour") leaves copies out by a column `event_time`, of `written`, and its watermark, which
    is for the caller's windows too (docs/spark.md). Both together raise SettingsError.
    Tasks hold, and log it, while the generations cannot be read to their end or there is none yet; topics need not
    exist yet. The stream ids of write times up to a task's start + 5 s can never change; later ones are marked `ahead`.
    """
    if one_copy_seconds is not None and one_copy_watermark is not None:
        raise SettingsError("one_copy_seconds and one_copy_watermark exclude each other: Spark has one watermark")
    kafka, prefix = settings.kafka.reveal(), settings.topics.prefix
    entries = None if table is None else value_schemas(settings, table)
    names = None if entries is None else sorted({entry.topic for entry in entries.values()})
    heads = with_head(
        read_messages(spark, settings, None if names is None else "|".join(map(re.escape, names)), options)
    )
    heads = heads if one_copy_seconds is None else one_copy(heads, one_copy_seconds)
    frame = assigned(heads, generations_of_task(kafka, prefix), prefix, lateness_seconds)
    frame = frame if entries is None else _typed(frame, settings, whole_definition(entries.values()))
    return frame if one_copy_watermark is None else one_copy_by_event_time(frame, one_copy_watermark)


def value_schemas(settings: Settings, table: str) -> dict[bytes, SchemaEntry]:
    """The schemas of the table's messages by their ids, in the order of their announcement.

    Raises ServiceError while there is none.
    """
    with SchemaReader(settings.kafka.reveal(), settings.topics.prefix, ordered=True) as schemas:
        schemas.refresh()
        announced = sorted(schemas.items(), key=lambda item: item[1].announced)
    entries = {name: entry for name, entry in announced if str(entry.table) == table and entry.part == "value"}
    if not entries:
        raise ServiceError(
            f"{table} has no schema in {settings.topics.prefix}.schemas yet: has it cdc = true, and was it written to "
            "while an agent ran?"
        )
    return entries


def whole_definition(entries: Iterable[SchemaEntry]) -> Table:
    """The newest table of the name, with the columns of all its definitions, which are in `value_schemas`' order."""
    tables = [entry.table for entry in entries]
    return reduce(merge_definitions, [table for table in tables if table.id == tables[-1].id])


def _typed(frame: DataFrame, settings: Settings, definition: Table) -> DataFrame:
    """Every record brought to one reader's schema, which the JVM then reads."""
    for column in (*definition.key, *definition.columns):
        require_leaves(column.type)
    reader = canonical_text(value_schema(definition, settings.topics.prefix))
    convert = partial(_to_reader, settings.kafka.reveal(), settings.topics.prefix, reader, definition)
    uniform = frame.mapInArrow(convert, COLUMNS)
    change = uniform.withColumn("change", from_avro(F.expr(BODY_SQL), reader, PERMISSIVE))
    metadata = [name for name in uniform.columns if name != "value"]
    return change.select(*metadata, *[F.col(f"change.{name}").alias(name) for name in _RECORD])


def _to_reader(
    config: Mapping[str, Scalar], prefix: str, reader: str, definition: Table, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Messages of other writer schemas re-written to the reader's; those that cannot be become null."""
    begin_task()
    reader_id = schema_id(reader)
    for batch in batches:
        ids = batch.column("schema_id")
        if pc.all(pc.equal(ids, pa.scalar(reader_id, pa.binary()))).as_py():
            yield batch
            continue
        schemas = _schemas(tuple(config.items()), prefix)
        unique_ids = filter(None, pc.unique(ids).to_pylist())
        entries = {name: entry for name in unique_ids if (entry := schemas.get(name)) is not None}
        # A registry has its own id for the reader's schema, too.
        matching_ids = {reader_id, *(name for name, entry in entries.items() if entry.avro == reader)}
        forms = {name: _form_of(entry, definition, prefix) for name, entry in entries.items()}
        values = [
            value if name in matching_ids else rewritten(value, forms.get(name), reader)
            for value, name in zip(batch.column("value").to_pylist(), ids.to_pylist(), strict=True)
        ]
        index = batch.schema.get_field_index("value")
        yield batch.set_column(index, batch.schema.field(index), pa.array(values, pa.binary()))


@cache
def _schemas(config: tuple[tuple[str, Scalar], ...], prefix: str) -> SchemaReader:
    """The worker process's reader of `<prefix>.schemas`; it stays for later tasks."""
    return SchemaReader(dict(config), prefix)


__all__: Final = ["changes"]


class WriterForm:
    """How the messages of a writer's schema are read by a reader's definition of their table."""

    def __init__(self, entry: SchemaEntry, definition: Table, prefix: str) -> None:
        """`prefix` is that of the reader's schema."""
        self.entry = entry
        table = named_as(entry.table, definition)
        self.unfit = unfit_columns(table, definition)
        """The columns that have another type there."""
        # Names are no part of Avro's bytes: those of now stand in the schema by which these are read.
        self.schema = entry.avro if table == entry.table else canonical_text(value_schema(table, prefix))
        pairs = list(zip(entry.table.key, table.key, strict=True))
        self._key = {was.name: now.name for was, now in pairs if was.name != now.name}
        types = zip(entry.table.columns, table.columns, strict=True)
        self._fields = {
            avro_name(now.name): dict(zip(was.type.fields, now.type.fields, strict=True))
            for was, now in types
            if was.type.multicell and was.type.fields != now.type.fields
        }

    def rename(self, record: Any) -> None:
        """Put the names of now for those that a record has as values."""
        for raw in record["raw"] or ():
            raw["column"] = self._key.get(raw["column"], raw["column"])
        for column, names in self._fields.items():
            edit = record["columns"].get(column)
            if edit is not None:
                edit["removed"] = [names.get(field, field) for field in edit["removed"]]


_form_of = cache(WriterForm)


def rewritten(message: bytes | None, form: WriterForm | None, reader: str) -> bytes | None:
    """The message under the reader's schema, which is given as its canonical text, without columns that do not fit it.

    None where it cannot be read, or where nothing is known of its own schema.
    """
    if message is None or form is None:
        return None
    try:
        plain = io.BytesIO(_plain_body(message, form.entry))
        record: Any = schemaless_reader(plain, _plain(form.schema), None if form.unfit else _parsed(reader))
        form.rename(record)
        for name in form.unfit:
            for values in filter(None, (record["key"], record["columns"])):
                values.pop(avro_name(name), None)
            for bound in (record["range"] or {}).values():
                bound.pop(bound_name(name), None)
        body = io.BytesIO()
        schemaless_writer(body, _parsed(reader), record)
    except (SchemaResolutionError, ValueError, EOFError, LookupError, TypeError, DecodeError) as error:
        log.warning(
            "a message of schema %s does not fit the table's definition and goes to the dead letters: %s",
            form.entry.schema_id.hex(),
            error,
        )
        return None
    return frame(schema_id(reader)) + body.getvalue()


def named_as(table: Table, newest: Table) -> Table:
    """A definition with the names that a later one of the same table has for its key's columns, and fields of types."""
    if table.id != newest.id:
        return table
    now = {column.name_bytes: column for column in newest.columns}
    named_types: dict[tuple[int, int], CqlType] = {}

    def renamed(column: Column, present: Column | None) -> Column:
        if present is None:
            return column
        return replace(column, type=_named_as(column.type, present.type, named_types))

    keys = zip(table.key, newest.key, strict=True)
    key = [replace(renamed(was, now), name=now.name, name_bytes=now.name_bytes) for was, now in keys]
    return replace(
        table,
        partition_key=tuple(key[: len(table.partition_key)]),
        clustering=tuple(key[len(table.partition_key) :]),
        static=tuple([renamed(column, now.get(column.name_bytes)) for column in table.static]),
        regular=tuple([renamed(column, now.get(column.name_bytes)) for column in table.regular]),
    )


def _named_as(written: CqlType, newest: CqlType, named_types: dict[tuple[int, int], CqlType]) -> CqlType:
    """`named_types` are those that were met, by the ids of `written` and `newest`: a type may stand in many places."""
    if (written.kind, written.name) != (newest.kind, newest.name) or len(written.args) > len(newest.args):
        return written
    both_ids = id(written), id(newest)
    if both_ids not in named_types:
        args = tuple([_named_as(*pair, named_types) for pair in zip(written.args, newest.args, strict=False)])
        named_types[both_ids] = replace(written, args=args, fields=newest.fields[: len(written.fields)])
    return named_types[both_ids]


@cache
def unfit_columns(table: Table, reader: Table) -> frozenset[str]:
    """The columns of a writer's definition that have another type in the reader's."""
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
