"""Values as documents and columnar tables have them, in the one form of tests.oracle.values.

Maps stand there as arrays of entries, tuples and user types as structs, durations as their parts; times are numbers,
texts or datetimes, and bytes are bytes or Base64.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from tailrace_schemas.avro.names import avro_name
from tailrace_schemas.cql.types import CqlType
from tests.oracle.values import normal

_DAY_NANOSECONDS: Final = 86_400 * 10**9


class Documents:
    """Values of documents whose scalars are read by type as `scalars` say, else as most stores have them."""

    def __init__(self, scalars: Mapping[str, Callable[[Any], Any]]) -> None:
        self._scalars = {**_SCALARS, **scalars}

    def form(self, value: Any, cql_type: CqlType) -> object:
        """The one form of a column's value."""
        if value is not None and cql_type.kind == "blob":
            return self._scalars["blob"](value)
        return normal(self._as_text(value, cql_type), cql_type)

    def _as_text(self, value: Any, cql_type: CqlType) -> Any:
        """The value as a SQLite sink has it, its JSON parsed."""
        if value is None:
            return None
        args = cql_type.args
        match cql_type.kind:
            case "list" | "set" | "vector":
                return [self._as_text(item, args[0]) for item in value]
            case "map":
                return {self._key(entry["key"], args[0]): self._as_text(entry.get("value"), args[1]) for entry in value}
            case "tuple":
                return [self._as_text(value.get(f"f{place}"), arg) for place, arg in enumerate(args)]
            case "udt":
                fields = zip(cql_type.fields, args, strict=True)
                return {name: self._as_text(value.get(avro_name(name)), arg) for name, arg in fields}
            case "blob":
                return "0x" + self._scalars["blob"](value).hex()
        return self._scalars.get(cql_type.kind, _same)(value)

    def _key(self, value: Any, cql_type: CqlType) -> str:
        shown = self._as_text(value, cql_type)
        return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)


def _same(value: Any) -> Any:
    return value


def _bytes(value: Any) -> bytes:
    return base64.b64decode(value, validate=True) if isinstance(value, str) else bytes(value)


def moment(value: Any) -> str:
    """Milliseconds behind a dot, Z behind them."""
    if not isinstance(value, datetime.datetime):
        return str(value)
    there = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return there.isoformat(timespec="milliseconds") + "Z"


def _time(value: Any) -> str:
    if isinstance(value, str):
        return value
    assert 0 <= value < _DAY_NANOSECONDS
    seconds, fraction = divmod(value, 10**9)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:09}"


def _duration(value: Mapping[str, int]) -> str:
    parts = [(value["months"], "mo"), (value["days"], "d"), (value["nanoseconds"], "ns")]
    sign = "-" if min(number for number, _ in parts) < 0 else ""
    return sign + ("".join(f"{abs(number)}{unit}" for number, unit in parts if number) or "0ns")


_SCALARS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "timestamp": moment,
    "date": str,
    "time": _time,
    "duration": _duration,
    "blob": _bytes,
}
stored: Final = Documents({}).form
"""The one form of a column's value in a columnar table or an index."""
