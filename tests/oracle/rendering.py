"""What a SQLite sink must hold for a value that CQL's SELECT returned: said a second time, apart from the sink's code.

Values are cassandra-driver's: told apart by their CQL type, so that the driver is not needed here.
"""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from math import isfinite, isnan
from typing import Any, Final

from tailrace_schemas.cql.types import CqlType

NESTED: Final = frozenset({"list", "set", "vector", "map", "tuple", "udt"})
_DAY: Final = datetime.timedelta(days=1)
_EPOCH_DAY: Final = datetime.date(1970, 1, 1)
_DAYS_OF_400_YEARS: Final = 146_097


def rendered(value: Any, cql_type: CqlType) -> object:
    """The value there; types of more than one part as JSON is read, decimals with their scale."""
    if value is None:
        return None
    kind = cql_type.kind
    if kind in NESTED:
        return _json(value, cql_type)
    if kind in ("float", "double"):
        return "NaN" if isnan(value) else value
    if kind == "decimal":
        return Decimal(value).as_tuple()
    if kind == "blob":
        return bytes(value)
    return _scalar(value, kind)


def _scalar(value: Any, kind: str) -> object:
    match kind:
        case "boolean":
            return bool(value)
        case "tinyint" | "smallint" | "int" | "bigint" | "counter":
            return int(value)
        case "timestamp":
            return value.isoformat(timespec="milliseconds") + "Z"
        case "date":
            return _date(value.days_from_epoch)
        case "time":
            return _time(value.nanosecond_time)
        case "duration":
            return _duration(value.months, value.days, value.nanoseconds)
    return str(value)


def _date(days: int) -> str:
    """As ISO 8601 writes it, with a sign beyond the years 0 to 9999, which CQL's dates exceed and Python's do not."""
    # The calendar repeats after 400 years.
    cycles, rest = divmod(days, _DAYS_OF_400_YEARS)
    day = _EPOCH_DAY + rest * _DAY
    year = day.year + 400 * cycles
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{day:%m-%d}"


def _json(value: Any, cql_type: CqlType) -> object:
    if value is None:
        return None
    args = cql_type.args
    match cql_type.kind:
        case "list" | "set" | "vector":
            return [_json(item, args[0]) for item in value]
        case "map":
            return {_json_key(key, args[0]): _json(item, args[1]) for key, item in value.items()}
        case "tuple":
            return [_json(item, arg) for item, arg in zip(value, args, strict=True)]
        case "udt":
            return {name: _json(item, arg) for name, item, arg in zip(cql_type.fields, value, args, strict=True)}
        case "float" | "double":
            return value if isfinite(value) else str(value)
        case "decimal":
            return str(value)
        case "blob":
            return "0x" + bytes(value).hex()
    return _scalar(value, cql_type.kind)


def _json_key(key: Any, cql_type: CqlType) -> str:
    value = _json(key, cql_type)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _time(nanoseconds: int) -> str:
    seconds, fraction = divmod(nanoseconds, 10**9)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:09}"


def _duration(months: int, days: int, nanoseconds: int) -> str:
    sign = "-" if min(months, days, nanoseconds) < 0 else ""
    parts = ((months, "mo"), (days, "d"), (nanoseconds, "ns"))
    return sign + ("".join(f"{abs(amount)}{unit}" for amount, unit in parts if amount) or "0ns")
