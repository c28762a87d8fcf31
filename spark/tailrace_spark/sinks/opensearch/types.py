"""CQL types as fields of a mapping, and values as JSON that these fields take, whatever they are.

What a field cannot index it ignores (`ignore_malformed`, `ignore_above`), and `_source` has it all the same: so no
value makes the server refuse its row.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import isfinite
from typing import Any, Final

from tailrace_schemas.avro.names import avro_name
from tailrace_schemas.cql.types import CqlType
from tailrace_spark.sinks.calendar import EPOCH_DAYS_MS, date_text, time_text, timestamp_text, year_of

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
