"""Holds what row state shows as plain values, with write times and times to live, against a node's answer in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec
from tailrace_schemas.table import Column
from tailrace_spark.rowstate.row import RowState
from tailrace_spark.rowstate.visible import VisibleColumns
from tests.corpus.model import Model, Place, Row


def check_shown(model: Model, answered: Mapping[Place, Row], asked: set[tuple[str, str]], now: int) -> None:
    """Fails where the visible rows at `now` are others than the node's; in `asked` is what it was asked for."""
    table = model.table
    kinds = (
        (table.static, VisibleColumns(table, static=True)),
        (table.regular, VisibleColumns(table)),
    )
    for place in {*answered, *model.rows}:
        row = answered.get(place)
        for columns, visible in kinds:
            static = columns is table.static
            at = (place[0], None) if static else place
            state = model.rows.get(at, RowState())
            values = visible.of(state, model.covering(at), now)
            times = visible.times(state, model.covering(at), now)
            if place[1] is not None and not static:
                assert (values is None) == (row is None), f"{table}: {place} is {values}, answered {row}"
            for column in columns if row is not None else ():
                if (place[0], column.name) not in model.ties and row is not None:
                    _check(column, row, asked, (values or {}).get(column.name), (times or {}).get(column.name))


def list_of(value: bytes, each: int = 1) -> list[bytes | None]:
    """The elements of a list's, set's or map's value, `each` of them an entry; null as None."""
    parts: list[bytes | None] = []
    at = 4
    for _ in range(each * int.from_bytes(value[:4], "big", signed=True)):
        size = int.from_bytes(value[at : at + 4], "big", signed=True)
        at += 4
        parts.append(None if size < 0 else value[at : at + size])
        at += max(size, 0)
    return parts


def _check(column: Column, row: Row, asked: set[tuple[str, str]], value: object, times: Any) -> None:
    answered, written, left = row[column.name]
    if (column.name, "value") in asked:
        # By their text: NaN is not equal to itself.
        decoded = None if answered is None else codec(_read_as(column.type)).decode(answered)
        assert repr(decoded) == repr(value), f"{column}: {value} by the log, answered {decoded}"
    for place, what, found in ((0, "writetime", written), (1, "ttl", left)):
        if (column.name, what) in asked and column.type.kind != "counter":
            ours = _part(times, place)
            theirs = None if found is None else _numbers(found, column.type.multicell)
            assert _none_if_nothing(ours) == _none_if_nothing(theirs), f"{column}: {what} {ours}, answered {theirs}"


def _read_as(cql_type: CqlType) -> CqlType:
    return CqlType("bigint") if cql_type.kind == "counter" else cql_type


def _part(times: Any, place: int) -> Any:
    if isinstance(times, list):
        return [None if one is None else one[place] for one in times]
    return None if times is None else times[place]


def _numbers(found: bytes, many: bool) -> Any:
    if not many:
        return int.from_bytes(found, "big", signed=True)
    return [None if part is None else int.from_bytes(part, "big", signed=True) for part in list_of(found)]


def _none_if_nothing(value: Any) -> Any:
    return None if value == [] else value
