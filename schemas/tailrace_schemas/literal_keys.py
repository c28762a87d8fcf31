"""Partition keys as a person writes them, CQL literals or bytes, to what Cassandra hashes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from tailrace_schemas.cql.values import codec, join_key
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.table import Column, Table

_BYTES: Final = re.compile(r"0[xX]((?:[0-9a-fA-F]{2})*)")
_PART: Final = re.compile(r"\s*('(?:[^']|'')*'|[^,']*?)\s*(,|$)")
_TIME: Final = re.compile(r"([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:\.([0-9]{1,9}))?")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def serialized_key(text: str, table: Table | None) -> bytes:
    """The serialized partition key of `0x...`, or of a table's CQL literals, commas between those of several columns.

    Strings may stand without quotes where the key has one column. Raises SettingsError, which quotes the text.
    """
    literal = _BYTES.fullmatch(text)
    if literal is not None:
        return bytes.fromhex(literal[1])
    if table is None:
        raise SettingsError(f"key {text!r}: give --table KEYSPACE.TABLE to write it in CQL, or 0x and the key's bytes")
    columns = table.partition_key
    parts = [text] if len(columns) == 1 else _split(text)
    if len(parts) != len(columns):
        names = ", ".join(column.name for column in columns)
        raise SettingsError(f"key {text!r}: {len(parts)} values; {table} has the partition key ({names})")
    try:
        types = [column.type for column in columns]
        return join_key(types, [_encoded(column, value) for column, value in zip(columns, parts, strict=True)])
    except ValueError as error:
        raise SettingsError(f"key {text!r}: {error}") from None


def _split(text: str) -> list[str]:
    """At the commas that are in no string."""
    parts: list[str] = []
    start = 0
    while True:
        match = _PART.match(text, start)
        if match is None:
            raise SettingsError(f"key {text!r}: a quote is open, or stands within a value")
        parts.append(match[1])
        if not match[2]:
            return parts
        start = match.end()


def _encoded(column: Column, text: str) -> bytes:
    """One value. Raises ValueError, which names the column."""
    kind = column.type.kind
    read = _READ.get(kind)
    if read is None:
        raise ValueError(f"{column.name} is {column.type}: give the whole key as 0x and its bytes")
    try:
        return codec(column.type).encode(read(text.strip() if kind not in _TEXTS else text))
    except ValueError as error:
        raise ValueError(f"{column.name} is {column.type}: {error}") from None


def _string(text: str) -> str:
    """Without quotes, where it has some."""
    quoted = len(text) > 1 and text[0] == text[-1] == "'"
    return text[1:-1].replace("''", "'") if quoted else text


def _blob(text: str) -> bytes:
    match = _BYTES.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no blob: 0x and two digits for each byte")
    return bytes.fromhex(match[1])


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _timestamp(text: str) -> int:
    """Milliseconds."""
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    when = datetime.fromisoformat(_string(text))
    elapsed = (when if when.tzinfo is not None else when.replace(tzinfo=UTC)) - _EPOCH
    milliseconds, rest = divmod(elapsed, timedelta(milliseconds=1))
    if rest:
        raise ValueError(f"{text!r} has more than milliseconds")
    return milliseconds


def _date(text: str) -> int:
    """Days since 1970."""
    return (date.fromisoformat(_string(text)) - _EPOCH.date()).days


def _time(text: str) -> int:
    """Nanoseconds of the day; written as a time (TimeSerializer.timeStringToLong), or as their number."""
    if text.isdigit():
        return int(text)
    match = _TIME.fullmatch(_string(text))
    if match is None:
        raise ValueError(f"{text!r} is no hh:mm:ss.fffffffff")
    when = time(int(match[1]), int(match[2]), int(match[3]))
    return ((when.hour * 60 + when.minute) * 60 + when.second) * 10**9 + int((match[4] or "").ljust(9, "0"))


_TEXTS: Final = frozenset({"text", "ascii"})
_READ: Final[Mapping[str, Callable[[str], object]]] = {
    "ascii": _string,
    "bigint": int,
    "blob": _blob,
    "boolean": _boolean,
    "date": _date,
    "decimal": str,
    "double": float,
    "float": float,
    "inet": _string,
    "int": int,
    "smallint": int,
    "text": _string,
    "time": _time,
    "timestamp": _timestamp,
    "timeuuid": str.lower,
    "tinyint": int,
    "uuid": str.lower,
    "varint": str,
}
