"""What an index shows of a source table: its mapping, its rows' documents and their ids, by one definition.

What a field cannot index it ignores (`ignore_malformed`, `ignore_above`), and `_source` has it all the same: so no
value makes the server refuse its row.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from math import isfinite
from typing import Any, Final

from tailrace_common.sections.template import claim
from tailrace_schemas.avro.names import avro_name
from tailrace_schemas.change_json import compact_json
from tailrace_schemas.cql.coding import Codec
from tailrace_schemas.cql.types import CqlType, require_leaves
from tailrace_schemas.cql.values import codec, split_key
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.table import Column, Table
from tailrace_spark.merge.partition import ClusteredState, Clustering
from tailrace_spark.merge.row import ShownRows
from tailrace_spark.merge.stored_row import STATIC, RowKey
from tailrace_spark.rowstate.row import RowState
from tailrace_spark.rowstate.visible import VisibleColumns
from tailrace_spark.sinks.calendar import EPOCH_DAYS_MS, date_text, time_text, timestamp_text, year_of

OWN: Final = "__tailrace"
"""The field below which all stands that is not the source's; no `_source` has it."""
TABLE_ID: Final = "#table"
_LONGEST_ID: Final = 512  # bytes
_LONGEST_NAME: Final = 255
# What a document must not have as a field: the servers' own.
_RESERVED: Final = frozenset(
    {"_id", "_index", "_type", "_source", "_routing", "_field_names", "_ignored", "_nested_path", "_seq_no", "_version",
     "_primary_term", "_doc_count", "_size", "_tier", "_data_stream_timestamp", "_score", "_feature", OWN}
)  # fmt: skip
# Key types of which a value says which bytes it stands for, so that its text may stand for the row.
_TELLING: Final = frozenset(
    {"ascii", "text", "tinyint", "smallint", "int", "bigint", "uuid", "timeuuid", "timestamp", "date", "time"}
)
_INTEGERS: Final = {"tinyint": 1, "smallint": 2, "int": 4, "bigint": 8}
Document = dict[str, Any]
Render = Callable[[Any], object]
Field = Mapping[str, Any]
_LONGEST_TERM: Final = 8191
"""Characters: four bytes each are still a term of Lucene's, 32,766 bytes at most."""
_KEYWORD: Final[Field] = {"type": "keyword", "ignore_above": _LONGEST_TERM}
_TEXT: Final[Field] = {"type": "text", "fields": {"keyword": _KEYWORD}}
_NUMBER_TEXT: Final[Field] = {**_KEYWORD, "fields": {"number": {"type": "double", "ignore_malformed": True}}}
_BINARY: Final[Field] = {"type": "binary"}
_SCALARS: Final[Mapping[str, Field]] = {
    "boolean": {"type": "boolean"},
    "tinyint": {"type": "byte"},
    "smallint": {"type": "short"},
    "int": {"type": "integer"},
    "bigint": {"type": "long"},
    "counter": {"type": "long"},
    "float": {"type": "float", "ignore_malformed": True},
    "double": {"type": "double", "ignore_malformed": True},
    "text": _TEXT,
    "ascii": _TEXT,
    "uuid": _KEYWORD,
    "timeuuid": _KEYWORD,
    "inet": {"type": "ip"},
    "varint": _NUMBER_TEXT,
    "decimal": _NUMBER_TEXT,
    "timestamp": {"type": "date", "format": "strict_date_optional_time||epoch_millis", "ignore_malformed": True},
    "date": {"type": "date", "format": "strict_date", "ignore_malformed": True},
    "time": _KEYWORD,
    "duration": {
        "properties": {"months": {"type": "integer"}, "days": {"type": "integer"}, "nanoseconds": {"type": "long"}}
    },
}
_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class Documents:
    """The documents of one source table, by one definition of it."""

    def __init__(self, table: Table, shown_rows: ShownRows | None = None) -> None:
        """Rows outside `shown_rows` have a document that no search finds, with their state alone."""
        self.table = table
        self._shown_rows = shown_rows
        self._regular = VisibleColumns(table)
        self._static = VisibleColumns(table, static=True)
        columns: tuple[Column, ...] = (*table.key, *self._static.columns, *self._regular.columns)
        names = _names(columns)
        for column in columns:
            require_leaves(column.type)
        self.properties: dict[str, Any] = {
            name: field_of(column.type) for name, column in zip(names, columns, strict=True)
        }
        """The mapping's fields of the source's columns, in its order."""
        self.names = {(column.kind, column.name): name for name, column in zip(names, columns, strict=True)}
        """What the fields of the source's columns are called."""
        fields = [(name, render(column.type)) for name, column in zip(names, columns, strict=True)]
        keys, statics = len(table.key), len(self._static.columns)
        self._key_shown = fields[:keys]
        self._static_shown = fields[keys : keys + statics]
        self._regular_shown = fields[keys + statics :]
        self._codecs: list[Codec] = [codec(column.type) for column in table.key]
        self._key_types = tuple(column.type for column in table.partition_key)
        self._key_told = [_told(column.type) for column in table.key]
        self._telling = all(column.type.kind in _TELLING for column in table.key)

    @property
    def whole_partitions(self) -> bool:
        """See `RowRenderer`."""
        return bool(self.table.static)

    def row(self, row_key: RowKey, state: ClusteredState, now: int | None) -> Document | None:
        """See `RowRenderer`; without what is the sink's own."""
        values = self._regular.values(state[0], None, now)
        if values is None or not (self._shown_rows is None or self._shown_rows.shows(values)):
            return None
        document = self._keys(row_key[0], state[1])
        _put(document, self._regular_shown, values)
        return document

    def partition(
        self, key: bytes, static: RowState | None, rows: Iterable[tuple[bytes, ClusteredState]], now: int | None
    ) -> dict[RowKey, Document]:
        """See `RowRenderer`."""
        statics = None if static is None else self._static.values(static, None, now)
        documents: dict[RowKey, Document] = {}
        for clustering, state in rows:
            document = self.row((key, clustering), state, now)
            if document is not None:
                _put(document, self._static_shown, statics or ())
                documents[key, clustering] = document
        if not documents and statics is not None:
            document = self._keys(key, [None] * len(self.table.clustering))
            _put(document, self._static_shown, statics)
            documents[key, STATIC] = document
        return documents

    def id_of(self, row_key: RowKey, written_as: Clustering) -> str:
        """The id of a row's document: its key's values as they are shown, or a digest.

        The value alone where the key has one column, else a JSON array. A digest where that has more than 512 bytes or
        where several texts could stand for one row, or one for several.
        """
        text = self._text(row_key[0], written_as) if self._telling else None
        return "#" + digest(*row_key) if text is None else text

    def _text(self, key: bytes, written_as: Clustering) -> str | None:
        values: list[object] = []
        try:
            parts = (*split_key(self._key_types, key), *written_as)
            for encoded, tell in zip(parts, self._key_told, strict=True):
                value = None if encoded is None else tell(encoded)
                if value is None:
                    return None
                values.append(value)
        except DecodeError:
            return None
        text = str(values[0]) if len(values) == 1 else compact_json(values)
        return text if text and text[0] != "#" and len(text.encode()) <= _LONGEST_ID else None

    def _keys(self, key: bytes, clustering: Clustering) -> Document:
        parts = (*split_key(self._key_types, key), *clustering)
        values = [
            None if encoded is None else of.decode(encoded) for of, encoded in zip(self._codecs, parts, strict=True)
        ]
        document: Document = {}
        _put(document, self._key_shown, values)
        return document


def _told(cql_type: CqlType) -> Callable[[bytes], object]:
    """What gives a value as it is shown; None where the bytes are none, or not those that the value gives back."""
    if cql_type.kind == "text":
        return _text_of
    if (size := _INTEGERS.get(cql_type.kind)) is not None:
        return _Integers(size).value
    return _Told(cql_type).value


def _text_of(data: bytes) -> object:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


class _Integers:
    """Numbers of so many bytes."""

    def __init__(self, size: int) -> None:
        self._size = size

    def value(self, data: bytes) -> object:
        return int.from_bytes(data, "big", signed=True) if len(data) == self._size else None


class _Told:
    """Values of any type."""

    def __init__(self, cql_type: CqlType) -> None:
        self._codec = codec(cql_type)
        self._render = render(cql_type)

    def value(self, data: bytes) -> object:
        """Raises DecodeError."""
        value = self._codec.decode(data)
        if value is None or self._codec.encode(value) != data:
            return None
        return value if self._render is None else self._render(value)


def head_id(partition: str) -> str:
    """The id of what is kept of a partition beside its rows; `partition` is the digest of its key."""
    return "#partition-" + partition


def digest(*parts: bytes) -> str:
    """Forty hexadecimal digits for some bytes, in parts whose limits count."""
    hasher = blake2b(digest_size=20)
    for octets in parts:
        hasher.update(len(octets).to_bytes(4, "big") + octets)
    return hasher.hexdigest()


def covers(existing: Mapping[str, Any], required: Mapping[str, Any]) -> bool:
    """Whether fields that are there need only be added to, at any depth, to be the wanted ones."""
    for name, field in existing.items():
        now = required.get(name)
        if now is None:
            return False
        inner, inner_now = field.get("properties"), now.get("properties")
        if inner is None or inner_now is None:
            if field != now:
                return False
        elif field.get("type") != now.get("type") or not covers(inner, inner_now):
            return False
    return True


def count_fields(properties: Mapping[str, Any]) -> tuple[int, int]:
    """How many fields there are in a mapping's, at any depth, and how many of them are nested."""
    fields = nested = 0
    for field in properties.values():
        inner = count_fields({**field.get("properties", {}), **field.get("fields", {})})
        fields += 1 + inner[0]
        nested += (field.get("type") == "nested") + inner[1]
    return fields, nested


def _put(document: Document, fields: list[tuple[str, Render | None]], values: Iterable[Any]) -> None:
    """Nulls are left out, as a field without a value is none."""
    for (name, convert), value in zip(fields, values, strict=False):
        if value is not None:
            document[name] = value if convert is None else convert(value)


def _names(columns: Iterable[Column]) -> list[str]:
    """The columns' names, none of them twice or a name of the server's."""
    used_names = set(_RESERVED)
    names = []
    for column in columns:
        name = claim(avro_name(column.name), _LONGEST_NAME, used_names)
        used_names.add(name.lower())
        names.append(name)
    return names


def field_of(cql_type: CqlType) -> Field:
    """The field of a column. What has no line is binary.

    A list or set is its elements' field, as every field may have several values. Of those with parts, and of maps,
    each element is a nested document, so that its parts are searched together.
    """
    match cql_type.kind:
        case "list" | "set" | "vector":
            element = field_of(cql_type.args[0])
            return {"type": "nested", **element} if "properties" in element else element
        case "map":
            key, value = map(field_of, cql_type.args)
            return {"type": "nested", "properties": {"key": key, "value": value}}
        case "tuple":
            return {"properties": {f"f{index}": field_of(arg) for index, arg in enumerate(cql_type.args)}}
        case "udt":
            pairs = zip(cql_type.fields, cql_type.args, strict=True)
            return {"properties": {avro_name(field): field_of(arg) for field, arg in pairs}}
    return _SCALARS.get(cql_type.kind, _BINARY)


@lru_cache(maxsize=4096)
def render(cql_type: CqlType) -> Render | None:
    """What makes a plain value (tailrace_schemas.cql.values) what JSON has of it; None: it is that already."""
    match cql_type.kind:
        case "list" | "set" | "vector":
            item = render(cql_type.args[0])
            return None if item is None else lambda value: [_of(item, element) for element in value]
        case "map":
            key, item = map(render, cql_type.args)
            return lambda value: [
                {"key": _of(key, entry["key"]), "value": _of(item, entry["value"])} for entry in value
            ]
        case "tuple":
            parts = [(f"f{index}", f"f{index}", render(arg)) for index, arg in enumerate(cql_type.args)]
            return lambda value: _record(value, parts)
        case "udt":
            pairs = zip(cql_type.fields, cql_type.args, strict=True)
            fields = [(name, avro_name(name), render(arg)) for name, arg in pairs]
            return lambda value: _record(value, fields)
        case "float" | "double":
            return lambda value: value if isfinite(value) else _NOT_FINITE[str(value)]
        case "timestamp":
            return _timestamp
        case "date":
            return date_text
        case "time":
            return time_text
    return None if cql_type.kind in _SCALARS else lambda value: base64.b64encode(value).decode()


def _timestamp(milliseconds: int) -> object:
    """A moment of the years 0 to 9999 as text; another as the number that it is, which the field takes too."""
    return timestamp_text(milliseconds) if 0 <= year_of(milliseconds // EPOCH_DAYS_MS) <= 9999 else milliseconds


def _record(value: Mapping[str, Any], parts: list[tuple[str, str, Render | None]]) -> dict[str, object]:
    return {to: _of(convert, value[name]) for name, to, convert in parts if value.get(name) is not None}


def _of(convert: Render | None, value: Any) -> object:
    return value if value is None or convert is None else convert(value)
