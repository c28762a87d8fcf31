"""Statements as the changes that Cassandra would log for them: a thin, readable way to write histories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any
from uuid import UUID

from tailrace_schemas.change import Bound, Cell, Change, ColumnDeletion, Deletion, Marker, Op, Origin, Source
from tailrace_schemas.cql.values import codec, join_key
from tailrace_schemas.position import Position
from tailrace_schemas.table import Column, Table
from tailrace_schemas.tokens import token
from tests.unit.spark.changes import column

LOCAL = 1_700_000_000
_offsets = count(100, 10)
_digests = count(1)


def source() -> Source:
    """A place in one host's log; each is later than the one before."""
    return Source("11111111-0000-0000-0000-000000000000", "dc1", Position(1, 5, next(_offsets)), 0, 1, Origin.LOG)


def with_source(change: Change, **fields: Any) -> Change:
    """The change with other fields of its source."""
    place = source() if change.source is None else change.source
    return replace(change, source=replace(place, **fields))


def truncate(
    table: Table, host: str, written: int, upto: Position | None = None, flags: int = 0, seen: int = 0
) -> Change:
    """What a host tells of a truncation; `written` in microseconds, `upto` a position in its log."""
    place = replace(source(), host=host, seen=seen, flags=flags)
    deletion = Deletion(written, written // 1_000_000)
    return Change(
        op=Op.TRUNCATE, table=table, token=0, key=None, deletion=deletion, digest=bytes(16), source=place, upto=upto
    )


def key_of(table: Table, *values: object) -> bytes:
    """The serialized partition key of plain values."""
    types = [c.type for c in table.partition_key]
    return join_key(types, [codec(t).encode(v) for t, v in zip(types, values, strict=True)])


def clustering_of(table: Table, values: tuple[object, ...]) -> tuple[bytes | None, ...]:
    """The bytes of clustering values, or of a prefix of them."""
    return tuple(codec(c.type).encode(v) for c, v in zip(table.clustering, values, strict=False))


def path(number: int) -> bytes:
    """A list's path: a time UUID whose time is `number`; larger numbers are later, and stand further back."""
    return UUID(fields=(number & 0xFFFFFFFF, number >> 32 & 0xFFFF, 0x1000 | number >> 48, 0x80, 0, 0)).bytes


class Log:
    """Makes the changes of one table."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def insert(self, key: tuple[object, ...], clustering: tuple[object, ...], at: int, **values: object) -> Change:
        """INSERT ... USING TIMESTAMP at: a row marker and cells; None deletes a cell."""
        return self._row(Op.INSERT, key, clustering, values, at, marker=Marker(at))

    def update(self, key: tuple[object, ...], clustering: tuple[object, ...], at: int, **values: object) -> Change:
        """UPDATE: cells without a row marker."""
        return self._row(Op.UPDATE, key, clustering, values, at)

    def static(self, key: tuple[object, ...], at: int, **values: object) -> Change:
        """UPDATE of static columns."""
        return self._row(Op.UPDATE, key, None, values, at)

    def delete(self, key: tuple[object, ...], clustering: tuple[object, ...], at: int) -> Change:
        """DELETE of a row."""
        return self._row(Op.DELETE, key, clustering, {}, at, deletion=Deletion(at, LOCAL))

    def delete_partition(self, key: tuple[object, ...], at: int) -> Change:
        """DELETE of a partition."""
        return self._change(Op.DELETE_PARTITION, key, deletion=Deletion(at, LOCAL))

    def delete_range(
        self, key: tuple[object, ...], start: tuple[object, ...], end: tuple[object, ...], at: int, ends: str = "[]"
    ) -> Change:
        """DELETE of a range in storage order; `ends` as in "[)": which bounds are in it."""
        low, high = clustering_of(self.table, start), clustering_of(self.table, end)
        bounds = {"start": Bound(low, ends[0] == "["), "end": Bound(high, ends[1] == "]")}
        return self._change(Op.DELETE_RANGE, key, deletion=Deletion(at, LOCAL), **bounds)

    def _row(
        self,
        op: Op,
        key: tuple[object, ...],
        clustering: tuple[object, ...] | None,
        values: Mapping[str, object],
        at: int,
        marker: Marker | None = None,
        deletion: Deletion | None = None,
    ) -> Change:
        cells: list[Cell] = []
        deleted: list[ColumnDeletion] = []
        for name, value in values.items():
            self._cells(column(self.table, name), value, at, cells, deleted)
        return self._change(
            op,
            key,
            clustering=None if clustering is None else clustering_of(self.table, clustering),
            static=clustering is None,
            marker=marker,
            deletion=deletion,
            cells=tuple(cells),
            column_deletions=tuple(deleted),
        )

    def _cells(self, target: Column, value: object, at: int, cells: list[Cell], deleted: list[ColumnDeletion]) -> None:
        """A dict {path: value} edits elements of a multi-cell column, with "=" in it it overwrites the column."""
        if not target.type.multicell:
            data = None if value is None else codec(target.type).encode(value)
            cells.append(Cell(target, None, at, None, LOCAL if data is None else None, data))
            return
        if value is None or (isinstance(value, dict) and "=" in value):
            deleted.append(ColumnDeletion(target, Deletion(at if value is None else at - 1, LOCAL)))
        for element, item in (value or {}).items() if isinstance(value, dict) else ():
            if element != "=":
                cells.append(self._element(target, element, item, at))

    def _element(self, target: Column, element: object, item: object, at: int) -> Cell:
        args = target.type.args
        match target.type.kind:
            case "list":
                where, coder = path(int(str(element))), codec(args[0])
            case "udt":
                index = target.type.fields.index(str(element))
                where, coder = index.to_bytes(2, "big"), codec(args[index])
            case _:
                where, coder = codec(args[0]).encode(element), codec(args[-1])
        data = None if item is None else b"" if target.type.kind == "set" else coder.encode(item)
        return Cell(target, where, at, None, LOCAL if data is None else None, data)

    def _change(self, op: Op, key: tuple[object, ...], **parts: object) -> Change:
        serialized = key_of(self.table, *key)
        return Change(
            op=op,
            table=self.table,
            token=token(serialized),
            key=serialized,
            digest=next(_digests).to_bytes(16, "big"),
            source=source(),
            **parts,  # type: ignore[arg-type]  # the callers above pass Change's own fields
        )
