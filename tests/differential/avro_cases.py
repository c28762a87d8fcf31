"""Entry points of Avro: values and changes to messages and back, by objects, by plans and by bytes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Final, Literal
from zlib import crc32

from librt.strings import BytesWriter

from tailrace_schemas.avro import Encoder, SchemaEntry, decode, entry_from_record, schema_records
from tailrace_schemas.avro.change_plan import ChangePlan
from tailrace_schemas.avro.convert import forming, plain_of, to_avro, to_bytes, to_formed, without_logical_types
from tailrace_schemas.avro.decode import reader_of, written_of
from tailrace_schemas.avro.frames import body_at
from tailrace_schemas.avro.schema import key_schema, value_schema
from tailrace_schemas.avro.values import MessageCursor, put_element, read_optional, reader_of_type
from tailrace_schemas.change import Change, record_times
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec
from tailrace_schemas.digest import change_digest, mutation_digest
from tailrace_schemas.forms import PLAIN_FORMS, ValueForms
from tailrace_schemas.table import Table
from tailrace_schemas.transcode.primitives import is_ascii, stands_at, write_long
from tailrace_schemas.transcode.values import write_object, writer_of
from tests.differential.cases import Case, Family, calls, examples
from tests.differential.inputs import WORDS, damaged, hostile_changes, logged_changes, values
from tests.unit.schemas.avro.expected import ALL_FORMS

PREFIX: Final = "app"


_SCHEMAS: Final[dict[bytes, SchemaEntry]] = {}
_ENCODERS: Final[dict[tuple[int, ValueForms, str], tuple[Table, Encoder]]] = {}


def encoder(
    table: Table, forms: ValueForms = PLAIN_FORMS, key: Literal["partition", "primary"] = "partition"
) -> Encoder:
    """Made once; its schemas are known to readers from then on."""
    made = _ENCODERS.get((id(table), forms, key))
    if made is None:
        made = _ENCODERS[id(table), forms, key] = table, Encoder(table, PREFIX, key, forms)
        _SCHEMAS.update({key: entry_from_record(key, value) for key, value in schema_records(made[1], "t")})
    return made[1]


@cache
def messages() -> tuple[tuple[Change, bytes], ...]:
    """Changes, each with its message of the plain forms."""
    changes = [*logged_changes(), *hostile_changes()]
    Random(3).shuffle(changes)
    return tuple((change, encoder(change.table).value(change)) for change in changes)


def _values(random: Random) -> Iterator[Case]:
    for index, (of, data) in enumerate(values()):
        inputs = [*damaged(random, data, examples(12))]
        yield from calls(f"to Avro {index} of {of}", _to_avro, ((of, some) for some in inputs))
        for number, forms in enumerate(ALL_FORMS if index % 7 == 0 else (PLAIN_FORMS, ALL_FORMS[-1])):
            yield from calls(f"formed {index} {number} of {of}", _formed, ((of, some, forms) for some in inputs[:6]))
            yield from calls(f"written {index} {number} of {of}", _written, ((of, some, forms) for some in inputs))
        if of.kind != "counter":
            avro = _written(of, data, PLAIN_FORMS)
            yield from calls(
                f"read {index} of {of}", _read, ((of, some) for some in damaged(random, avro, examples(12)))
            )


def _to_avro(of: CqlType, data: bytes) -> object:
    value, exact = to_avro(of, data)
    return value, exact, None if value is None else to_bytes(of, value)


def _formed(of: CqlType, data: bytes, forms: ValueForms) -> object:
    out = BytesWriter()
    value, exact = to_formed(of, data, forms)
    if value is not None and forms == PLAIN_FORMS:
        write_object(out, of, value)
    return value, exact, out.getvalue(), forming(of, forms) is None


def _written(of: CqlType, data: bytes, forms: ValueForms) -> bytes:
    """The bytes of Avro, and whether they give the value back."""
    out = BytesWriter()
    exact = writer_of(of, forms).write(out, b"x" + data + b"yz", 1, 1 + len(data))
    return out.getvalue() + bytes((bool(exact),))


def _read(of: CqlType, data: bytes) -> object:
    reader, results = reader_of_type(of), list[object]()
    for start, read in ((0, reader.read), (0, lambda cursor: read_optional(reader, cursor))):
        cursor = MessageCursor(data, start)
        try:
            value = read(cursor)
        except Exception as error:
            results.append(type(error).__name__ in ("OtherwiseError", "IndexError", "ValueError"))
            continue
        parts: list[bytes] = []
        put_element(parts, value)
        results += [value, cursor.offset, parts]
    return results


def _forms(table: Table) -> ValueForms:
    """Other forms than the plain ones, the same for all changes of a table: schemas take their time."""
    return ALL_FORMS[crc32(str(table.columns).encode()) % len(ALL_FORMS)]


def _changes(_: Random) -> Iterator[Case]:
    for index, (change, _message) in enumerate(messages()):
        yield from calls(f"change {index}", _encoded, [(change, _forms(change.table))])
        yield from calls(f"digest {index}", _digests, [change])
    tables = {id(change.table): change.table for change, _ in messages()}
    for index, table in enumerate([*tables.values()][: examples(12)]):
        yield from calls(f"schema {index}", _plain, [(table, forms) for forms in ALL_FORMS])


def _encoded(change: Change, forms: ValueForms) -> object:
    made = encoder(change.table, forms)
    primary = encoder(change.table, PLAIN_FORMS, "primary")
    message = made.value(change)
    return message, made.key(change), primary.key(change), made.record(change), decode(message, _SCHEMAS)


def _digests(change: Change) -> object:
    digest, source = change_digest(change), change.source
    flags = None if source is None else (source.streamed, source.begins_update, source.ends_update)
    return digest, mutation_digest([digest, b"x"]), record_times(change), flags


def _plain(table: Table, forms: ValueForms) -> object:
    value, key = value_schema(table, PREFIX, forms), key_schema(table, PREFIX, "primary", forms)
    return [(plain_of(schema)[0], without_logical_types(schema)) for schema in (value, key)]


def _messages(random: Random) -> Iterator[Case]:
    for index, (change, message) in enumerate(messages()):
        inputs = (
            [message[:10] + body for body in damaged(random, message[10:], examples(8))]
            if len(message) < 5_000
            else [message]
        )
        yield from calls(f"message {index}", _decoded, ((change.table, some) for some in inputs))
        formed = encoder(change.table, _forms(change.table))
        inputs = [formed.value(change)[:10] + body for body in damaged(random, formed.value(change)[10:], 3)]
        yield from calls(f"formed message {index}", decode, ((some, _SCHEMAS) for some in inputs))
    yield from calls("framed", decode, ((some, _SCHEMAS) for some in damaged(random, messages()[0][1][:12], 40)))
    yield from calls("times", written_of, (message for _, message in messages()))
    heads = (message[:30] for _, message in messages()[:60])
    yield from calls("written", written_of, (some for head in heads for some in damaged(random, head, 20)))


def _decoded(table: Table, message: bytes) -> object:
    """By way of the record too; what comes back is written again, and has a digest."""
    by_plan = ChangePlan(table).change(message, body_at(message))
    change = decode(message, _SCHEMAS)
    reader = reader_of(_SCHEMAS[message[2:10]])
    again = Encoder.value(encoder(table), change)
    return by_plan, change, reader.change(reader.record(message)), again, change_digest(change)


def _primitives(random: Random) -> Iterator[Case]:
    yield from calls("long", _long, WORDS)
    texts = [b"", b"abc", b"ab\x80", b"\xffabc"]
    yield from calls(
        "stands", stands_at, ((data, start, text) for data in texts for start in (0, 1, 3) for text in texts)
    )
    yield from calls("ascii", is_ascii, ((text, 0, end) for text in texts for end in range(len(text) + 1)))
    cursors = [random.randbytes(20) for _ in range(examples(100))] + [b"\xff" * n + b"\x01" for n in range(12)]
    cursors += [b"\xfe" + b"\xff" * n + last for n in range(12) for last in (b"\x00", b"\x01", b"\x02", b"\x7f")]
    yield from calls("cursor", _cursed, cursors)


def _long(value: int) -> bytes:
    out = BytesWriter()
    write_long(out, value)
    return out.getvalue()


def _cursed(data: bytes) -> object:
    results: list[object] = []
    for name in ("long", "present", "flag", "span", "octets", "text", "block"):
        cursor = MessageCursor(data, 0)
        try:
            results.append((getattr(cursor, name)(), cursor.offset))
        except Exception as error:
            results.append(type(error).__name__)
    return results, codec(CqlType("blob")).decode(data)


FAMILIES: Final[tuple[Family, ...]] = (_values, _changes, _messages, _primitives)
