"""CQL types and values as SQL's: natural where the database holds every value, exact text where it does not.

TYPES is the table of what becomes of which type, as docs/sinks/sql.md shows it. In JSON, maps are objects with text
keys as in CQL's SELECT JSON, tuples arrays, user types objects, sets arrays in Cassandra's order. Decimals and varints
are strings, so that no reader rounds them. Blobs are 0x and hex digits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import isfinite, isnan
from typing import Any, Final

from sqlalchemy.types import UserDefinedType

from tailrace_schemas.change_json import compact_json
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.errors import UnsupportedError
from tailrace_spark.sinks.calendar import EPOCH_DAYS_MS, date_text, time_text, timestamp_text, year_of
from tailrace_spark.sinks.state_store.tables import DIALECTS, MYSQL, POSTGRESQL, SQLITE

ToSql = Callable[[Any], object]

_NESTED: Final = frozenset({"list", "set", "map", "tuple", "udt", "vector"})
_ASCII: Final = " CHARACTER SET ascii COLLATE ascii_bin"
# For each type: in SQLite, PostgreSQL, and MySQL and MariaDB. What has no line is a blob.
TYPES: Final[Mapping[str, tuple[str, str, str]]] = {
    "boolean": ("BOOLEAN", "BOOLEAN", "BOOLEAN"),
    "tinyint": ("SMALLINT", "SMALLINT", "TINYINT"),
    "smallint": ("SMALLINT", "SMALLINT", "SMALLINT"),
    "int": ("INTEGER", "INTEGER", "INTEGER"),
    "bigint": ("BIGINT", "BIGINT", "BIGINT"),
    "counter": ("BIGINT", "BIGINT", "BIGINT"),
    "float": ("REAL", "REAL", "DOUBLE"),
    "double": ("DOUBLE PRECISION", "DOUBLE PRECISION", "DOUBLE"),
    "text": ("TEXT", "TEXT", "LONGTEXT"),
    "ascii": ("TEXT", "TEXT", "LONGTEXT"),
    "blob": ("BLOB", "BYTEA", "LONGBLOB"),
    "uuid": ("TEXT", "UUID", "CHAR(36)" + _ASCII),
    "timeuuid": ("TEXT", "UUID", "CHAR(36)" + _ASCII),
    "inet": ("TEXT", "INET", "VARCHAR(45)" + _ASCII),
    "varint": ("TEXT", "NUMERIC", "LONGTEXT" + _ASCII),
    "decimal": ("TEXT", "NUMERIC", "LONGTEXT" + _ASCII),
    "timestamp": ("TEXT", "TIMESTAMP WITH TIME ZONE", "DATETIME(3)"),
    "date": ("TEXT", "DATE", "DATE"),
    "time": ("TEXT", "TEXT", "CHAR(18)" + _ASCII),
    "duration": ("TEXT", "TEXT", "VARCHAR(64)" + _ASCII),
    **dict.fromkeys(sorted(_NESTED), ("TEXT", "JSONB", "JSON")),
}
_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
# Years that PostgreSQL's types hold: 4713 BC is year -4712.
_POSTGRES_YEARS: Final = {"timestamp": (-4712, 294275), "date": (-4712, 5874896)}
_MOMENTS: Final = (10_957 * EPOCH_DAYS_MS, 2**63 - 1, 1000)


class SqlType(UserDefinedType[object]):
    """A column type by its name in DDL; values reach the driver as they are, and the database reads text itself."""

    cache_ok = True

    def __init__(self, spec: str) -> None:
        self.spec = spec

    def get_col_spec(self, **_: object) -> str:
        """The name, for CREATE TABLE."""
        return self.spec

    def bind_processor(self, dialect: Any) -> Callable[[Any], Any] | None:
        """What a statement binds in place of a value of `to_sql`."""
        kind = {spec[1]: kind for kind, spec in TYPES.items() if kind in _POSTGRES_YEARS}.get(self.spec)
        return None if dialect.name != POSTGRESQL or kind is None else _nullable(_postgres_text(kind))


def column_spec(cql_type: CqlType, dialect: str) -> str:
    """The SQL type of a column."""
    return TYPES.get(cql_type.kind, TYPES["blob"])[DIALECTS.index(dialect)]


def to_sql(cql_type: CqlType, dialect: str) -> ToSql:
    """What makes a plain value (tailrace_schemas.cql.values) ready to bind to a column of `column_spec`."""
    kind = cql_type.kind
    if kind in _NESTED:
        render = json_value(cql_type)
        return lambda value: compact_json(render(value))
    if kind in _POSTGRES_YEARS and dialect != SQLITE:
        return _postgres_time(kind) if dialect == POSTGRESQL else _mysql_time(kind)
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
        case "float" | "double" if dialect == MYSQL:
            return _finite
    return same


@lru_cache(maxsize=4096)
def json_value(cql_type: CqlType) -> ToSql:
    """What makes a plain value a JSON value."""
    match cql_type.kind:
        case "list" | "set" | "vector":
            item = _nullable(json_value(cql_type.args[0]))
            return lambda value: [item(element) for element in value]
        case "map":
            key, item = _json_key(cql_type.args[0]), _nullable(json_value(cql_type.args[1]))
            return lambda value: {key(entry["key"]): item(entry["value"]) for entry in value}
        case "tuple":
            parts = [(f"f{i}", _nullable(json_value(arg))) for i, arg in enumerate(cql_type.args)]
            return lambda value: [render(value.get(name)) for name, render in parts]
        case "udt":
            pairs = zip(cql_type.fields, _json_names(cql_type.fields), cql_type.args, strict=True)
            fields = [(name, to, _nullable(json_value(arg))) for name, to, arg in pairs]
            return lambda value: {to: render(value.get(name)) for name, to, render in fields}
        case "float" | "double":
            return lambda value: value if isfinite(value) else _NOT_FINITE[str(value)]
        case "timestamp" | "date" | "time" | "duration":
            return to_sql(cql_type, SQLITE)
        case "blob" | "custom" | "empty":
            return lambda value: "0x" + value.hex()
    return same


def duration_text(value: dict[str, int]) -> str:
    """A duration as CQL reads it: 1mo2d3ns, with a sign in front where it is negative (all parts share it)."""
    months, days, nanoseconds = value["months"], value["days"], value["nanoseconds"]
    sign = "-" if min(months, days, nanoseconds) < 0 else ""
    parts = ((abs(months), "mo"), (abs(days), "d"), (abs(nanoseconds), "ns"))
    return sign + ("".join(f"{count}{unit}" for count, unit in parts if count) or "0ns")


def _json_names(fields: Sequence[str]) -> list[str]:
    """The fields' names; with an underscore for U+0000, which PostgreSQL has in no text, and a number where twice."""
    names: list[str] = []
    for field in fields:
        base = name = field.replace("\0", "_")
        suffix = 1
        while name in names or (name != field and name in fields):
            suffix += 1
            name = f"{base}_{suffix}"
        names.append(name)
    return names


def _json_key(cql_type: CqlType) -> Callable[[Any], str]:
    render = json_value(cql_type)

    def key(value: Any) -> str:
        rendered = None if value is None else render(value)
        return rendered if isinstance(rendered, str) else json.dumps(rendered, ensure_ascii=False)

    return key


def _postgres_time(kind: str) -> ToSql:
    """Days or microseconds since 2000, as PostgreSQL has them: its infinities are the least and the largest number."""
    first, last = _POSTGRES_YEARS[kind]
    unit, since, largest, finer = (1, 10_957, 2**31 - 1, 1) if kind == "date" else (EPOCH_DAYS_MS, *_MOMENTS)

    def convert(value: int) -> int:
        year = year_of(value // unit)
        if not first <= year <= last:
            return largest if year > last else -largest - 1
        return (value - since) * finer

    return convert


def _postgres_text(kind: str) -> ToSql:
    """What PostgreSQL reads as these."""
    text, since, largest, finer = (date_text, 10_957, 2**31 - 1, 1) if kind == "date" else (timestamp_text, *_MOMENTS)
    unit = 1 if kind == "date" else EPOCH_DAYS_MS

    def convert(stored: int) -> str:
        if stored in (largest, -largest - 1):
            return "infinity" if stored > 0 else "-infinity"
        value = stored // finer + since
        year = year_of(value // unit)
        if year > 0:
            return text(value).removeprefix("+")
        # PostgreSQL has no year 0: year 0 is 1 BC.
        return f"{1 - year:04d}-{text(value).lstrip('-').partition('-')[2]} BC"

    return convert


def _mysql_time(kind: str) -> ToSql:
    """Years 1 to 9999, which DATETIME and DATE hold; what is beyond becomes the first or last value."""
    text, unit, rest = (date_text, 1, "") if kind == "date" else (timestamp_text, EPOCH_DAYS_MS, " 00:00:00.000")
    last = "9999-12-31" + (" 23:59:59.999" if rest else "")

    def convert(value: int) -> str:
        year = year_of(value // unit)
        if not 1 <= year <= 9999:
            return last if year > 9999 else "0001-01-01" + rest
        return text(value).replace("T", " ").removesuffix("Z")

    return convert


def _finite(value: float) -> float:
    if not isfinite(value):
        raise UnsupportedError(f"MySQL and MariaDB have no {_NOT_FINITE[str(value)]}")
    return value


def _nullable(render: ToSql) -> ToSql:
    return lambda value: None if value is None else render(value)


def same(value: object) -> object:
    """The value itself: most are bound as they are."""
    return value
