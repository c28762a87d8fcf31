"""CQL types and values as SQL's: natural where the database holds every value, exact text where it does not.

| CQL | SQLite | PostgreSQL |
| --- | --- | --- |
| boolean | BOOLEAN (0, 1) | BOOLEAN |
| tinyint, smallint; int; bigint | SMALLINT; INTEGER; BIGINT | the same |
| float; double | REAL; DOUBLE PRECISION, NaN is the text NaN | the same, NaN is NaN |
| text, ascii | TEXT | TEXT; U+0000 cannot be stored: dead letter |
| blob, custom types | BLOB | BYTEA |
| uuid, timeuuid; inet | TEXT | UUID; INET |
| varint, decimal | TEXT, exact | NUMERIC, exact |
| timestamp | TEXT, 2024-02-29T12:00:00.000Z, with a sign from year 10000 on and before year 0 | TIMESTAMPTZ; beyond its years infinity, -infinity |
| date | TEXT, 2024-02-29, signed likewise | DATE; beyond its years infinity, -infinity |
| time | TEXT, 12:00:00.000000000 | TEXT: TIME has no nanoseconds |
| duration | TEXT, 1mo2d3ns | TEXT: INTERVAL has no nanoseconds |
| collections, tuples, vectors, user types | JSON as TEXT | JSONB |

In JSON, maps are objects with text keys as in CQL's SELECT JSON, tuples arrays, user types objects, sets arrays in
Cassandra's order; decimals and varints are strings, so that no reader rounds them; blobs are 0x and hex digits.
"""  # noqa: E501 - a table's row is one line

from __future__ import annotations

import json
from collections.abc import Callable
from math import isfinite, isnan
from typing import Any, Final

from sqlalchemy.types import UserDefinedType

from tailrace_schemas.cql.types import CqlType
from tailrace_spark.sinks.calendar import EPOCH_DAYS_MS, date_text, time_text, timestamp_text, year_of

ToSql = Callable[[Any], object]
SQLITE: Final = "sqlite"
POSTGRESQL: Final = "postgresql"

_NESTED: Final = frozenset({"list", "set", "map", "tuple", "udt", "vector"})
_COMMON: Final = {
    "boolean": "BOOLEAN",
    "tinyint": "SMALLINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "REAL",
    "double": "DOUBLE PRECISION",
    "text": "TEXT",
    "ascii": "TEXT",
    "time": "TEXT",
    "duration": "TEXT",
}
_SPECS: Final = {
    SQLITE: dict.fromkeys(("uuid", "timeuuid", "inet", "varint", "decimal", "timestamp", "date"), "TEXT"),
    POSTGRESQL: {
        "uuid": "UUID",
        "timeuuid": "UUID",
        "inet": "INET",
        "varint": "NUMERIC",
        "decimal": "NUMERIC",
        "timestamp": "TIMESTAMP WITH TIME ZONE",
        "date": "DATE",
    },
}
_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
# Years that PostgreSQL's types hold: 4713 BC is year -4712.
_POSTGRES_YEARS: Final = {"timestamp": (-4712, 294275), "date": (-4712, 5874896)}


class SqlType(UserDefinedType[object]):
    """A column type by its name in DDL; values reach the driver as they are, and the database reads text itself."""

    cache_ok = True

    def __init__(self, spec: str) -> None:
        self.spec = spec

    def get_col_spec(self, **_: object) -> str:
        """The name, for CREATE TABLE."""
        return self.spec


def column_spec(cql_type: CqlType, dialect: str) -> str:
    """The SQL type of a column, as the table above says."""
    if cql_type.kind in _NESTED:
        return "JSONB" if dialect == POSTGRESQL else "TEXT"
    blob = "BYTEA" if dialect == POSTGRESQL else "BLOB"
    return _COMMON.get(cql_type.kind) or _SPECS[dialect].get(cql_type.kind, blob)


def to_sql(cql_type: CqlType, dialect: str) -> ToSql:
    """What makes a plain value (tailrace_schemas.cql.values) ready to bind to a column of `column_spec`."""
    kind = cql_type.kind
    if kind in _NESTED:
        render = json_value(cql_type)
        return lambda value: json.dumps(render(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    if dialect == POSTGRESQL and kind in _POSTGRES_YEARS:
        return _postgres_time(kind)
    match kind:
        case "timestamp":
            return timestamp_text
        case "date":
            return date_text
        case "time":
            return time_text
        case "duration":
            return duration_text
        case "float" | "double" if dialect == SQLITE:
            return lambda value: "NaN" if isnan(value) else value  # SQLite would store NULL
    return _same


def json_value(cql_type: CqlType) -> ToSql:
    """What makes a plain value a JSON value."""
    match cql_type.kind:
        case "list" | "set" | "vector":
            item = _nullable(json_value(cql_type.args[0]))
            return lambda value: [item(one) for one in value]
        case "map":
            key, item = _json_key(cql_type.args[0]), _nullable(json_value(cql_type.args[1]))
            return lambda value: {key(entry["key"]): item(entry["value"]) for entry in value}
        case "tuple":
            parts = [(f"f{i}", _nullable(json_value(arg))) for i, arg in enumerate(cql_type.args)]
            return lambda value: [render(value.get(name)) for name, render in parts]
        case "udt":
            fields = [(n, _nullable(json_value(a))) for n, a in zip(cql_type.fields, cql_type.args, strict=True)]
            return lambda value: {name: render(value.get(name)) for name, render in fields}
        case "float" | "double":
            return lambda value: value if isfinite(value) else _NOT_FINITE[str(value)]
        case "timestamp" | "date" | "time" | "duration":
            return to_sql(cql_type, SQLITE)
        case "blob" | "custom" | "empty":
            return lambda value: "0x" + value.hex()
    return _same


def duration_text(value: dict[str, int]) -> str:
    """A duration as CQL reads it: 1mo2d3ns, with a sign in front where it is negative (all parts share it)."""
    months, days, nanoseconds = value["months"], value["days"], value["nanoseconds"]
    sign = "-" if min(months, days, nanoseconds) < 0 else ""
    parts = ((abs(months), "mo"), (abs(days), "d"), (abs(nanoseconds), "ns"))
    return sign + ("".join(f"{number}{unit}" for number, unit in parts if number) or "0ns")


def _json_key(cql_type: CqlType) -> Callable[[Any], str]:
    render = json_value(cql_type)

    def key(value: Any) -> str:
        rendered = None if value is None else render(value)
        return rendered if isinstance(rendered, str) else json.dumps(rendered, ensure_ascii=False)

    return key


def _postgres_time(kind: str) -> ToSql:
    first, last = _POSTGRES_YEARS[kind]
    text = date_text if kind == "date" else timestamp_text
    unit = 1 if kind == "date" else EPOCH_DAYS_MS

    def convert(value: int) -> str:
        year = year_of(value // unit)
        if not first <= year <= last:
            return "infinity" if year > last else "-infinity"
        if year > 0:
            return text(value).removeprefix("+")
        # PostgreSQL has no year 0: year 0 is 1 BC.
        return f"{1 - year:04d}-{text(value).lstrip('-').partition('-')[2]} BC"

    return convert


def _nullable(render: ToSql) -> ToSql:
    return lambda value: None if value is None else render(value)


def _same(value: object) -> object:
    return value
