"""A change as JSON and back (docs/change-json.md): the form of commands and change-log sinks; and as a line for
people.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tailrace_schemas.avro.decode import Reader
from tailrace_schemas.avro.encode import Encoder
from tailrace_schemas.avro.names import avro_name, bound_name
from tailrace_schemas.avro.registry import SchemaEntry
from tailrace_schemas.change import Change
from tailrace_schemas.cql.json_value import plain
from tailrace_schemas.errors import CorruptError
from tailrace_schemas.table import Column, Table

# What `tailrace dump` cannot know of a source, and leaves out.
_UNKNOWN_SOURCE: Final[Mapping[str, object]] = {
    "host": "", "datacenter": "", "epoch": 0, "origin": "log", "durable": True, "seen": 0, "flags": 0,
}  # fmt: skip

UNNAMED: Final = "tailrace"
"""The prefix of topics in the schemas of what is not published."""

_Convert = Callable[[Any], object]
_BEGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OP_WIDTH: Final = len("delete_partition")


class ChangeJson:
    """The JSON form of the changes of one definition of a table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._encoder = Encoder(table, UNNAMED)
        entry = SchemaEntry(
            schema_id=self._encoder.schema_id, topic=str(table), table=table, avro=self._encoder.schema_text
        )
        self._reader = Reader(entry)
        self._back = _Types().of(json.loads(self._encoder.schema_text))

    def record(self, change: Change) -> dict[str, object]:
        """The change's Avro record (docs/contracts.md 3), of which `write` is the JSON; raises what that does."""
        return self._encoder.record(change)

    def change(self, record: dict[str, Any]) -> Change:
        """The change of an Avro record in which nothing is left out. Raises CorruptError."""
        return self._reader.change(record)

    def write(self, change: Change) -> dict[str, object]:
        """The JSON object of a change of this table, its table's name in front; columns that it has not are left out.

        Cells of dropped columns are not in it, as they are not in messages. Raises ValueError for a change without a
        source, or without a write time.
        """
        return self._written(self.record(change))

    def write_message(self, message: bytes) -> dict[str, object]:
        """As `write`, of a framed message that was made by this definition in the plain forms. Raises DecodeError."""
        return self._written(self._reader.record(message))

    def _written(self, record: dict[str, Any]) -> dict[str, object]:
        return {"table": str(self.table), **{name: plain(value) for name, value in record.items()}}

    def read(self, value: Mapping[str, Any]) -> Change:
        """The change of an object that `write`, `tailrace dump` or `tailrace tail` made of a change of this table.

        Members that the form does not have, such as a place in Kafka, are left alone. Cells come in the order in which
        messages are decoded. Raises CorruptError where a value is not what the form has there.
        """
        source = value.get("source")
        complete = {**value, "source": {**_UNKNOWN_SOURCE, **source} if isinstance(source, Mapping) else source}
        try:
            record = complete if self._back is None else self._back(complete)
            return self._reader.change(record)  # type: ignore[arg-type]  # a record's converter gives a dict
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CorruptError(f"{self.table}: not a change's JSON: {type(error).__name__}: {error}") from error


class ChangeForms:
    """The forms of several definitions, each made once. Tables are compared by identity: to hash one takes longer."""

    def __init__(self) -> None:
        self._forms: dict[int, ChangeJson] = {}

    def of(self, table: Table) -> ChangeJson:
        """The form of a definition's changes."""
        form = self._forms.get(id(table))
        if form is None:
            form = self._forms[id(table)] = ChangeJson(table)  # which keeps the table, and so its id
        return form


compact_json: Final[Callable[[object], str]] = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":")
).encode
"""JSON without spaces, in which text stays as it is. Raises ValueError for floats that are no number.

`json.dumps` makes an encoder for each call: it takes twice as long.
"""


def _float(value: object) -> float:
    if isinstance(value, str):
        if value.startswith("nan:"):
            unpacked: float = struct.unpack(">d", bytes.fromhex(value.removeprefix("nan:")))[0]
            return unpacked
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"a number, not {type(value).__name__}")
    return float(value)


def _optional(value: object, convert: _Convert) -> object:
    return None if value is None else convert(value)


class _Types:
    """What makes an Avro value of its JSON form, by Avro type; None where the two are the same."""

    def __init__(self) -> None:
        self._named: dict[str, _Convert | None] = {}

    def of(self, schema: Any) -> _Convert | None:
        """The converter of a schema; named types are known from where they are first met."""
        if isinstance(schema, list):
            return self._nullable(schema)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind in self._named:
            return self._named[kind]
        match kind:
            case "bytes" | "fixed":
                convert: _Convert | None = bytes.fromhex
            case "float" | "double":
                convert = _float
            case "array":
                convert = self._array(schema["items"])
            case "record":
                convert = self._record(schema["fields"])
            case _:
                convert = None
        if isinstance(schema, dict) and "name" in schema:
            self._named[schema["name"]] = convert
        return convert

    def _nullable(self, schema: list[Any]) -> _Convert | None:
        inner = self.of(schema[1])
        return None if inner is None else lambda value: _optional(value, inner)

    def _array(self, items: Any) -> _Convert | None:
        inner = self.of(items)
        return None if inner is None else lambda value: [inner(item) for item in value]

    def _record(self, fields: list[Any]) -> _Convert:
        """Fields that may be null may be missing too."""
        parts = [(field["name"], isinstance(field["type"], list), self.of(field["type"])) for field in fields]

        def convert(value: Mapping[str, Any]) -> dict[str, object]:
            record: dict[str, object] = {}
            for name, nullable, inner in parts:
                item = value.get(name) if nullable else value[name]
                record[name] = item if inner is None else inner(item)
            return record

        return convert


def change_words(table: Table, record: Mapping[str, Any]) -> str:
    """The line of a record (docs/contracts.md 3) of the table: `time op key: columns`."""
    key, rest = key_words(table, record), edit_words(table, record)
    return f"{time_words(record['written'])} {record['op']:<{_OP_WIDTH}} {key}{': ' if rest else ''}{rest}"


def key_words(table: Table, record: Mapping[str, Any]) -> str:
    """Which row, range or partition it is."""
    return ", ".join(_key(table, record)) or "the whole table"


def edit_words(table: Table, record: Mapping[str, Any]) -> str:
    """What is set and deleted, and what is unusual about it; empty where there is neither."""
    return "; ".join([*_columns(table, record), *_extra(record)])


def time_words(written: int) -> str:
    """A write time (microseconds); writers choose it, so it may be beyond any calendar."""
    try:
        return (_BEGIN + timedelta(microseconds=written)).strftime("%Y-%m-%d %H:%M:%S.%fZ")
    except (OverflowError, ValueError):
        return f"{written} us"


def _key(table: Table, record: Mapping[str, Any]) -> Iterator[str]:
    """Key columns that have values, then a range's ends."""
    key = record["key"] or {}
    for column in (*table.partition_key, *table.clustering):
        value = key.get(avro_name(column.name))
        if value is not None:
            yield f"{column.name}={_value(column, value)}"
    if record["range"] is not None:
        for end, word in (("start", "from"), ("end", "to")):
            yield f"{word} {_bound(table.clustering, record['range'][end], end)}"


def _bound(clustering: Sequence[Column], bound: Mapping[str, Any], end: str) -> str:
    values = [_text(bound[bound_name(column.name)]) for column in clustering[: bound["count"]]]
    if not values:
        return f"the partition's {end}"
    return f"({', '.join(values)}) {'inclusive' if bound['inclusive'] else 'exclusive'}"


def _columns(table: Table, record: Mapping[str, Any]) -> Iterator[str]:
    for column in table.columns:
        value = record["columns"].get(avro_name(column.name))
        if column.name in record["deleted"]:
            yield f"{column.name} deleted"
        elif isinstance(value, dict) and column.type.multicell:
            yield from _edit(column, value)
        elif value is not None:
            yield f"{column.name}={_value(column, value)}"


def _edit(column: Column, edit: Mapping[str, Any]) -> Iterator[str]:
    """What happens to a collection or user type that is kept cell by cell: `=` all of it, `+` and `-` some of it."""
    name, added = column.name, edit["set"]
    if isinstance(added, dict):
        fields = ((field, added.get(avro_name(field))) for field in column.type.fields)
        items = [f"{field}: {_text(value)}" for field, value in fields if value is not None]
        removed = list(edit["removed"])
    else:
        items = [_element(item) for item in added]
        removed = [_text(item.get("key", item["path"])) for item in edit["removed"]]
    if edit["deleted_at"] is not None:
        yield f"{name}={{{', '.join(items)}}}"
    elif items:
        yield f"{name} + {{{', '.join(items)}}}"
    if removed:
        yield f"{name} - {{{', '.join(removed)}}}"


def _element(item: Mapping[str, Any]) -> str:
    """A set's element, a list's value, or a map's pair."""
    return ": ".join(_text(item[field]) for field in ("key", "value") if field in item)


def _extra(record: Mapping[str, Any]) -> Iterator[str]:
    source = record["source"]
    if record["ttl"] is not None:
        yield f"TTL {record['ttl']} s"
    if source["origin"] != "log":
        yield f"origin {source['origin']}"
    if not source["durable"]:
        yield "not durable yet"


def _value(column: Column, value: object) -> str:
    """A column's value; a timestamp, which is milliseconds, as a time."""
    if column.type.kind == "timestamp" and isinstance(value, int):
        return time_words(value * 1000).replace("000Z", "Z")
    return _text(value)


def _text(value: object) -> str:
    """As JSON, in which no control character reaches the terminal; bytes as 0x and hexadecimal digits."""
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return json.dumps(plain(value), ensure_ascii=False)
