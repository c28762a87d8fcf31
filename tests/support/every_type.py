"""A table with a column of every type, and any change of its rows."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from tailrace_schemas.avro import Encoder, SchemaEntry, entry_from_record, schema_records
from tailrace_schemas.change import Cell, Change, ColumnDeletion, Deletion, Marker, Op, Source
from tailrace_schemas.digest import change_digest
from tailrace_schemas.position import Position
from tests.unit.tables import table

TABLE = table(
    {"pk": "int", "who": "text"},
    {"ck": "timestamp desc", "n": "varint"},
    {"s": "text", "st": "set<int>"},
    {
        "a": "int", "b": "text", "c": "blob", "d": "decimal", "e": "varint", "f": "float", "g": "double",
        "h": "boolean", "i": "inet", "j": "duration", "k": "uuid", "l": "list<text>",
        "m": "map<text, frozen<list<int>>>",
        "o": "set<text>", "p": "addr", "q": "frozen<addr>", "r": "frozen<tuple<int, text>>", "t": "vector<smallint, 2>",
        "u": "date", "v": "time", "w": "tinyint", "x": "frozen<map<int, text>>", "y": "'org.example.Custom'",
        "z": "smallint", "_x 1": "bigint",
    },
    dropped={"gone": ("int", 77)},
)  # fmt: skip
ENCODER = Encoder(TABLE, "app.cdc")
SCHEMAS: dict[bytes, SchemaEntry] = {
    key: entry_from_record(key, value) for key, value in schema_records(ENCODER, "app.cdc.ks.t")
}
COLUMNS = {column.name: column for column in TABLE.columns}
SOURCE = Source(host="h1", datacenter="dc1", position=Position(1, 1 << 40, 123), index=0, count=1, seen=1700000000000)
KEY = bytes.fromhex("0004000000070000026d6500")
times = st.integers(-(2**63), 2**63 - 1)
seconds = st.integers(0, 2**32 - 1)


def _paths(name: str) -> st.SearchStrategy[bytes | None]:
    column = COLUMNS[name]
    if not column.type.multicell:
        return st.none()
    if column.type.kind == "list":
        return st.binary(min_size=16, max_size=16)
    if column.type.kind == "udt":
        return st.integers(0, 4).map(lambda index: index.to_bytes(2, "big"))
    return st.binary(max_size=5)


@st.composite
def cells(draw: st.DrawFn, static: bool) -> Cell:
    """Any cell: right bytes, wrong bytes, no bytes, tombstones."""
    names = [name for name, column in COLUMNS.items() if (column in TABLE.static) is static]
    name = draw(st.sampled_from(names))
    column, path = COLUMNS[name], draw(_paths(name))
    written = draw(st.one_of(st.just(1000), times))
    if draw(st.booleans()):
        return Cell(column, path, written, None, draw(seconds), None)
    size = column.type.fixed_size
    data = draw(st.one_of(st.binary(max_size=20), st.binary(min_size=size or 4, max_size=size or 4), st.just(b"")))
    if column.type.kind == "set":
        data = b""
    ttl = draw(st.none() | st.integers(1, 630720000))
    return Cell(column, path, written, ttl, None if ttl is None else draw(seconds), data)


@st.composite
def row_changes(draw: st.DrawFn) -> Change:
    """Any row or static change."""
    static = draw(st.booleans())
    found = {(cell.column.name, cell.path): cell for cell in draw(st.lists(cells(static), max_size=8))}
    multicell = [c for c in (TABLE.static if static else TABLE.regular) if c.type.multicell]
    deleted = draw(st.lists(st.sampled_from(multicell), unique=True, max_size=3))
    marker = draw(st.none() | st.builds(Marker, times)) if not static else None
    change = Change(
        op=Op.UPDATE if marker is None else Op.INSERT,
        table=TABLE,
        token=draw(times),
        key=KEY,
        clustering=None
        if static
        else (draw(st.binary(min_size=8, max_size=8)), draw(st.binary(min_size=1, max_size=4))),
        static=static,
        marker=marker,
        cells=tuple(found.values()),
        column_deletions=tuple(ColumnDeletion(c, Deletion(draw(times), draw(seconds))) for c in deleted),
        source=SOURCE,
    )
    if not (change.marker or change.cells or change.column_deletions):
        only = Cell(COLUMNS["s" if static else "a"], None, 1, None, 5, None)
        change = replace(change, cells=(only,))
    return replace(change, digest=change_digest(change))


INSERT = Change(
    op=Op.INSERT,
    table=TABLE,
    token=-9,
    key=KEY,
    clustering=((1700000000000).to_bytes(8, "big"), b"\x05"),
    marker=Marker(1000),
    cells=(
        Cell(COLUMNS["a"], None, 1000, None, None, b"\0\0\0\x2a"),
        Cell(COLUMNS["b"], None, 2000, 60, 1700000060, "téxt".encode()),
        Cell(COLUMNS["d"], None, 1000, None, 1700000000, None),
        Cell(COLUMNS["e"], None, 1000, None, None, b"\0\x05"),
        Cell(COLUMNS["z"], None, 1000, None, None, b""),
        Cell(COLUMNS["m"], b"key", 1000, None, None, bytes.fromhex("000000010000000400000001")),
        Cell(COLUMNS["m"], b"old", 1000, None, 1700000000, None),
        Cell(COLUMNS["p"], b"\0\x01", 1000, None, None, b"\0\0\0\x07"),
        Cell(COLUMNS["p"], b"\0\x00", 1000, None, 1700000000, None),
    ),
    column_deletions=(ColumnDeletion(COLUMNS["m"], Deletion(999, 1700000000)),),
    source=SOURCE,
    digest=b"d" * 16,
)
