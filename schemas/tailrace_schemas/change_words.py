"""A change record as one line for people: when it was written, what it does, to which row, and what it sets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tailrace_schemas.avro.names import avro_name, bound_name
from tailrace_schemas.change_json import plain
from tailrace_schemas.table import Column, Table

_BEGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OP_WIDTH: Final = len("delete_partition")


def words(table: Table, record: Mapping[str, Any]) -> str:
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
