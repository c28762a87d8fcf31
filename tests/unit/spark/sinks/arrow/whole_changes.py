"""Changes whose bytes are values of their types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from tailrace_schemas.change import Cell, Change, Deletion, Marker, Op
from tailrace_schemas.cql.numeric import minimal
from tailrace_schemas.cql.values import codec, join_key
from tailrace_schemas.streams import Assignment
from tailrace_spark.batch.delivery import Delivered, RecordId
from tests.support.every_type import COLUMNS, SOURCE, TABLE, seconds, times

NAN = bytes.fromhex("7ff8000000000000")
ODD_NAN = bytes.fromhex("7ff0000000000001")
milliseconds = st.integers(-62_135_596_800_000, 253_402_300_799_999) | st.sampled_from([-(2**63), 2**63 - 1])
days = st.integers(0, 2**32 - 1) | st.integers(2**31 - 1000, 2**31 + 1000)
_BYTES = {
    "boolean": st.sampled_from([b"\x00", b"\x01"]),
    "text": st.text().map(str.encode),
    "ascii": st.text(st.characters(max_codepoint=127)).map(str.encode),
    "blob": st.binary(),
    "custom": st.binary(),
    "decimal": st.tuples(st.integers(-300, 300), st.integers(-(2**70), 2**70)).map(
        lambda pair: pair[0].to_bytes(4, "big", signed=True) + minimal(pair[1])
    ),
    "varint": st.integers(-(2**70), 2**70).map(minimal),
    "inet": st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16),
    "timestamp": milliseconds.map(lambda at: at.to_bytes(8, "big", signed=True)),
    "date": days.map(lambda day: day.to_bytes(4, "big")),
    "double": st.floats().map(codec(COLUMNS["g"].type).encode) | st.sampled_from([NAN, ODD_NAN]),
    "float": st.floats(width=32).map(codec(COLUMNS["f"].type).encode),
}
_SIZES = {"tinyint": 1, "smallint": 2, "int": 4, "bigint": 8, "time": 8, "uuid": 16, "timeuuid": 16}


def _values(kind: str) -> st.SearchStrategy[bytes]:
    return _BYTES[kind] if kind in _BYTES else st.binary(min_size=_SIZES[kind], max_size=_SIZES[kind])


@st.composite
def whole_changes(draw: st.DrawFn) -> Change:
    """Any change of simple columns whose bytes are values of their types: what goes through the columns."""
    op = draw(st.sampled_from([Op.INSERT, Op.UPDATE, Op.DELETE, Op.DELETE_PARTITION, Op.READ]))
    deletes = op in (Op.DELETE, Op.DELETE_PARTITION)
    at, ttl = draw(times), draw(st.none() | st.integers(1, 1000))
    expires = None if ttl is None else draw(seconds)
    columns = [column for column in TABLE.regular if column.type.kind in {*_BYTES, *_SIZES}]
    cells = []
    for column in draw(st.lists(st.sampled_from(columns), unique=True, min_size=1)) if not deletes else ():
        value = draw(st.none() | _values(column.type.kind))
        written, own, end = draw(st.sampled_from([(at, ttl, expires), (at // 2, None, None), (at, 7, 8)]))
        cells.append(Cell(column, None, written, own, end if value is not None else 5, value))
    key = join_key([column.type for column in TABLE.partition_key], [draw(_values("int")), draw(_values("text"))])
    return Change(
        op=op,
        table=TABLE,
        token=draw(times),
        key=key,
        clustering=None if op is Op.DELETE_PARTITION else (draw(_values("timestamp")), draw(_values("varint"))),
        marker=Marker(at, ttl, expires) if op is Op.INSERT else None,
        deletion=Deletion(at, draw(seconds)) if deletes else None,
        cells=tuple(cells),
        digest=draw(st.binary(min_size=16, max_size=16)),
        source=replace(SOURCE, position=replace(SOURCE.position, offset=draw(st.integers(0, 2**62)))),
    )


def delivered(changes: Sequence[Change]) -> list[Delivered]:
    """Some with a stream, some without; of two schemas."""
    return [
        Delivered(
            RecordId("app.ks.t", at % 3, at, b"" if at % 2 else b"12345678"),
            change,
            None if at % 5 == 0 else Assignment(at, at.to_bytes(16, "big")),
        )
        for at, change in enumerate(changes)
    ]
