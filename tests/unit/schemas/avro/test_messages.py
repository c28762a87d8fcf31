"""Changes to framed Avro messages and back: nothing lost, whatever the bytes; and as fastavro alone reads them."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import replace

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.avro import PREFIX_SCHEMA, Encoder, SchemaEntry, decode, entry_from_record, schema_records
from tailrace_schemas.avro.names import cql_name
from tailrace_schemas.avro.registry import UnknownSchemaError
from tailrace_schemas.avro.schema import canonical_text, schema_id, value_schema
from tailrace_schemas.change import Bound, Cell, Change, ColumnDeletion, Deletion, Marker, Op, Source
from tailrace_schemas.digest import change_digest
from tailrace_schemas.errors import CorruptError, DecodeError, TruncatedError
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


def ordered(change: Change) -> Change:
    """The change with its cells in one order, to compare by."""
    return replace(
        change,
        cells=tuple(sorted(change.cells, key=lambda c: (c.column.name_bytes, c.path or b""))),
        column_deletions=tuple(sorted(change.column_deletions, key=lambda c: c.column.name_bytes)),
    )


@pytest.mark.slow
@given(row_changes())
def test_every_row_change_comes_back(change: Change) -> None:
    decoded = decode(ENCODER.value(change), SCHEMAS)
    assert ordered(decoded) == ordered(change)
    assert change_digest(decoded) == change.digest


@pytest.mark.parametrize(
    "change",
    [
        Change(
            op=Op.DELETE_PARTITION, table=TABLE, token=1, key=KEY, deletion=Deletion(5, 6), source=SOURCE,
            digest=bytes(16),
        ),
        Change(
            op=Op.DELETE, table=TABLE, token=1, key=KEY, clustering=(bytes(8), b"\1"), deletion=Deletion(5, 6),
            source=SOURCE, digest=bytes(16),
        ),
        Change(
            op=Op.DELETE_RANGE, table=TABLE, token=1, key=KEY, deletion=Deletion(5, 6), source=SOURCE, digest=bytes(16),
            start=Bound((), True), end=Bound((bytes(8), b""), False),
        ),
        Change(
            op=Op.DELETE_RANGE, table=TABLE, token=1, key=KEY, deletion=Deletion(5, 6), source=SOURCE, digest=bytes(16),
            start=Bound((bytes(8),), False), end=Bound((), True),
        ),
    ],
    ids=["partition", "row", "range open at the start", "range open at the end"],
)  # fmt: skip
def test_deletions_come_back(change: Change) -> None:
    assert decode(ENCODER.value(change), SCHEMAS) == change


def test_a_clustering_column_may_have_the_name_of_a_bound_s_own_field() -> None:
    counted = table({"pk": "int"}, {"count": "int", "inclusive": "int"}, {"a": "int"})
    change = Change(
        op=Op.DELETE_RANGE, table=counted, token=1, key=bytes(4), deletion=Deletion(5, 6), source=SOURCE,
        digest=bytes(16),
        start=Bound((b"\0\0\0\7",), False), end=Bound((b"\0\0\0\7", b"\0\0\0\5"), True),
    )  # fmt: skip
    encoder = Encoder(counted, "t")
    fields = {field["name"]: field for field in json.loads(encoder.schema_text)["fields"]}
    start = fields["range"]["type"][1]["fields"][0]
    names = [field["name"] for field in start["type"]["fields"]]
    assert names == ["_x63_ount", "_x69_nclusive", "count", "inclusive"]  # Java's parser refuses a name twice
    assert [cql_name(name) for name in names[:2]] == ["count", "inclusive"]
    entries = {key: entry_from_record(key, value) for key, value in schema_records(encoder, "t.ks.t")}
    assert decode(encoder.value(change), entries) == change


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


def _read(message: bytes, schema: dict[str, object]) -> dict[str, object]:
    buffer = io.BytesIO(message)
    buffer.seek(10)
    record = fastavro.schemaless_reader(buffer, fastavro.parse_schema(schema), None)
    assert isinstance(record, dict)
    return record


def test_fastavro_reads_what_the_contract_says() -> None:
    """The record as an independent reader with the published schema sees it."""
    record = _read(ENCODER.value(INSERT), json.loads(SCHEMAS[ENCODER.schema_id].avro))
    assert (record["op"], record["token"], record["written"], record["ttl"], record["expires"]) == (
        "insert", -9, 1000, None, None,
    )  # fmt: skip
    assert record["key"] == {"pk": 7, "who": "me", "ck": 1700000000000, "n": "5"}
    assert record["deleted"] == ["d"]
    columns = record["columns"]
    assert isinstance(columns, dict)
    written = {name: value for name, value in columns.items() if value is not None}
    assert written == {
        "a": 42,
        "b": "téxt",
        "e": "5",
        "m": {
            "deleted_at": 999,
            "set": [{"path": b"key", "key": "key", "value": [1]}],
            "removed": [{"path": b"old", "key": "old"}],
        },
        "p": {"deleted_at": None, "set": {"street": None, "zip": 7, "tags": None}, "removed": ["street"]},
    }
    assert record["raw"] == [
        {"column": "e", "path": None, "where": "value", "bytes": b"\0\x05"},
        {"column": "z", "path": None, "where": "value", "bytes": b""},
    ]
    assert record["cells"] == [
        {"column": "m", "path": None, "written": 999, "ttl": None, "expires": 1700000000},
        {"column": "b", "path": None, "written": 2000, "ttl": 60, "expires": 1700000060},
        {"column": "d", "path": None, "written": 1000, "ttl": None, "expires": 1700000000},
        {"column": "m", "path": b"old", "written": 1000, "ttl": None, "expires": 1700000000},
        {"column": "p", "path": b"\0\x00", "written": 1000, "ttl": None, "expires": 1700000000},
    ]


def test_the_prefix_schema_reads_the_head_of_any_record() -> None:
    record = _read(ENCODER.value(INSERT), json.loads(PREFIX_SCHEMA))
    assert record == {"op": "insert", "token": -9, "written": 1000, "ttl": None, "expires": None, "digest": b"d" * 16}


def test_keys_hold_the_partition_key() -> None:
    message = ENCODER.key(INSERT)
    assert message is not None
    assert message[2:10] == ENCODER.key_schema_id
    assert _read(message, json.loads(SCHEMAS[ENCODER.key_schema_id].avro)) == {"pk": 7, "who": "me"}


def test_schemas_are_one_per_shape() -> None:
    """Comments, options and the cdc flag don't count; names, types and dropped columns do."""
    same = replace(TABLE, cdc=False)
    assert schema_id(canonical_text(value_schema(same, "app.cdc"))) == ENCODER.schema_id
    for other in (replace(TABLE, dropped=()), replace(TABLE, regular=TABLE.regular[1:]), replace(TABLE, static=())):
        assert schema_id(canonical_text(value_schema(other, "app.cdc"))) != ENCODER.schema_id


def test_every_cut_of_a_message_is_a_decode_error() -> None:
    message = ENCODER.value(INSERT)
    for size in range(len(message)):
        with pytest.raises((DecodeError, UnknownSchemaError)):
            decode(message[:size], SCHEMAS)


@pytest.mark.slow
@given(st.integers(10, 10_000), st.integers(0, 7))
def test_a_flipped_bit_is_a_value_or_a_decode_error(at: int, bit: int) -> None:
    message = bytearray(ENCODER.value(INSERT))
    message[10 + (at - 10) % (len(message) - 10)] ^= 1 << bit
    with contextlib.suppress(DecodeError):
        decode(bytes(message), SCHEMAS)


def test_foreign_messages_are_named() -> None:
    with pytest.raises(TruncatedError, match="header"):
        decode(b"\xc3\x01abc", SCHEMAS)
    with pytest.raises(CorruptError, match="c301"):
        decode(b"{" * 40, SCHEMAS)
    with pytest.raises(UnknownSchemaError, match="0000"):
        decode(b"\xc3\x01" + bytes(20), SCHEMAS)


def test_no_two_types_share_a_name_even_when_columns_ask_for_it() -> None:
    """Columns and user types that want the names of the record's own types get others; the schema still parses."""
    awkward = table(
        {"Key": "int"},
        {"Change": "int"},
        None,
        {"Cell": "map<int, int>", "Cell_edit": "list<int>", "Raw": "frozen<tuple<int, int>>"},
    )
    schema = value_schema(awkward, "p")
    names: list[str] = []

    def walk(node: object) -> None:
        if isinstance(node, dict):
            if node.get("type") in ("record", "enum", "fixed"):
                names.append(str(node["name"]))
            for child in node.values():
                walk(child)
        elif isinstance(node, list):
            for child in node:
                walk(child)

    walk(schema)
    assert len(names) == len(set(names))
    fastavro.parse_schema(schema)
