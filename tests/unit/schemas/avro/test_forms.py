"""The forms of [avro]: what plain fastavro reads, the exact bytes that come back, and the default that stays."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any, Final

import pytest
from fastavro import parse_schema, schemaless_reader
from hypothesis import given, settings
from hypothesis import strategies as st
from librt.strings import BytesWriter

from tailrace_schemas.avro import Encoder, SchemaEntry, decode, entry_from_record, schema_records
from tailrace_schemas.avro.convert import YEARS, to_formed
from tailrace_schemas.avro.decode import Reader
from tailrace_schemas.avro.schema import PrimaryKeys
from tailrace_schemas.change import Bound, Cell, Change, Deletion, Marker, Op, Source
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import join_key
from tailrace_schemas.errors import CorruptError
from tailrace_schemas.forms import ValueForms
from tailrace_schemas.position import Position
from tailrace_schemas.table import Column, ColumnKind, Table
from tailrace_schemas.transcode.values import writer_of
from tests.properties import examples
from tests.support.every_type import TABLE
from tests.unit.schemas.avro.expected import ALL_FORMS, expected
from tests.unit.schemas.cql.driver import comparable, to_bytes, typed_values
from tests.unit.schemas.cql.driver import types as cql_types
from tests.unit.tables import table

OTHER: Final = ValueForms("logical", "fixed", "bytes")
SOURCE: Final = Source("h", "dc", Position(1, 1, 1), 0, 1)


def of_type(cql_type: CqlType) -> Table:
    """A table that has values of the type wherever one can stand."""
    bare = replace(cql_type, frozen=False) if cql_type.kind in ("list", "set", "map", "udt") else cql_type

    def column(name: str, kind: ColumnKind, of: CqlType, position: int = -1) -> Column:
        return Column(name, name.encode(), kind, of, position)

    return replace(
        table({"unused": "int"}),
        partition_key=(column("p", ColumnKind.PARTITION_KEY, cql_type, 0),),
        clustering=(column("c", ColumnKind.CLUSTERING, cql_type, 0),),
        regular=(
            column("l", ColumnKind.REGULAR, CqlType("list", (cql_type,))),
            column("m", ColumnKind.REGULAR, CqlType("map", (cql_type, cql_type))),
            column("r", ColumnKind.REGULAR, bare if bare.kind == "vector" else cql_type),
            column("s", ColumnKind.REGULAR, CqlType("set", (cql_type,))),
        ),
    )


def row(of: Table, data: bytes) -> Change:
    """A row in which every value is `data`."""
    columns = {column.name: column for column in of.columns}
    path = b"p" * 16
    cells = (
        Cell(columns["l"], path, 1, None, None, data),
        Cell(columns["m"], data, 1, None, None, data),
        Cell(columns["r"], None, 1, None, None, data),
        Cell(columns["s"], data, 1, None, None, b""),
    )
    key = join_key((of.partition_key[0].type,), (data,))
    return Change(
        op=Op.INSERT, table=of, token=1, key=key, clustering=(data,), marker=Marker(1), cells=cells, source=SOURCE,
        digest=bytes(16),
    )  # fmt: skip


def whole_range(of: Table, data: bytes) -> Change:
    """The deletion of a range with this bound."""
    key = join_key((of.partition_key[0].type,), (data,))
    start, end = Bound((data,), True), Bound((data,), False)
    return Change(
        op=Op.DELETE_RANGE, table=of, token=1, key=key, deletion=Deletion(5, 6), source=SOURCE, digest=bytes(16),
        start=start, end=end,
    )  # fmt: skip


def entries(encoder: Encoder) -> dict[bytes, SchemaEntry]:
    return {key: entry_from_record(key, value) for key, value in schema_records(encoder, "t.ks.t")}


def stock(message: bytes, text: str) -> Any:
    """The record as fastavro reads it by the schema that was published, logical types and all."""
    try:
        return schemaless_reader(io.BytesIO(message[10:]), parse_schema(json.loads(text)), None)
    except (OverflowError, ValueError) as error:
        pytest.fail(f"a stock reader never gets past the record: {error}")


@pytest.mark.promise("avro-forms.same-values")
@pytest.mark.slow
@settings(max_examples=examples(16))
@given(typed_values(), st.sampled_from(ALL_FORMS))
def test_fastavro_reads_every_type_in_every_form(case: tuple[CqlType, Any], forms: ValueForms) -> None:
    """Keys, clustering columns, bounds, columns, elements, keys of sets and maps; and ours has the exact bytes."""
    cql_type, value = case
    data = to_bytes(cql_type, value)
    encoder = Encoder(of_type(cql_type), "t", "primary", forms)
    of = encoder.table
    wanted = expected(cql_type, value, forms)
    known = entries(encoder)
    change = row(of, data)
    message = encoder.value(change)
    record = stock(message, known[encoder.schema_id].avro)
    columns = record["columns"]
    values = [
        record["key"]["p"], record["key"]["c"], columns["r"], columns["l"]["set"][0]["value"],
        columns["m"]["set"][0]["key"], columns["m"]["set"][0]["value"], columns["s"]["set"][0]["key"],
    ]  # fmt: skip
    assert [comparable(cql_type, each) for each in values] == [wanted] * len(values)
    assert decode(message, known) == replace(change, cells=tuple(sorted(change.cells, key=lambda c: c.column.name)))

    key = encoder.key(change)
    assert key is not None
    framed_key = stock(key, known[encoder.key_schema_id].avro)
    assert [comparable(cql_type, framed_key[name]) for name in ("p", "c")] == [wanted, wanted]
    assert PrimaryKeys(of, "t", forms).body(message) == key[10:]

    deletion = whole_range(of, data)
    record = stock(encoder.value(deletion), known[encoder.schema_id].avro)
    assert [comparable(cql_type, record["range"][end]["c"]) for end in ("start", "end")] == [wanted, wanted]
    assert decode(encoder.value(deletion), known) == deletion


@pytest.mark.promise("avro-forms.same-values")
@pytest.mark.slow
@settings(max_examples=examples(16))
@given(typed_values(), st.sampled_from(ALL_FORMS))
def test_readers_of_ours_see_plain_records(case: tuple[CqlType, Any], forms: ValueForms) -> None:
    """One record under all forms, but for what a form cannot hold, which stands in `raw`."""
    cql_type, value = case
    change = row(of_type(cql_type), to_bytes(cql_type, value))
    encoder, default = Encoder(change.table, "t", forms=forms), Encoder(change.table, "t")
    reader = Reader(entries(encoder)[encoder.schema_id])
    record = reader.record(encoder.value(change))
    wanted = Reader(entries(default)[default.schema_id]).record(default.value(change))
    if len(record["raw"] or ()) == len(wanted["raw"] or ()):
        assert record == wanted
    else:
        assert forms.timestamps == "logical"
    assert reader.change(record) == decode(default.value(change), entries(default))
    assert reader.plain_schema == json.loads(default.schema_text)
    assert reader.plain is (encoder.schema_id == default.schema_id)


@pytest.mark.slow
@given(cql_types(1), st.binary(max_size=20), st.sampled_from(ALL_FORMS), st.integers(0, 3))
def test_both_writers_give_the_same_bytes_of_anything(
    cql_type: CqlType, data: bytes, forms: ValueForms, before: int
) -> None:
    """Of bytes that are no value of the type, or not the shortest, too; wherever in the mutation they stand."""
    out = BytesWriter()
    padded = b"\0" * before + data + b"\xff" * 3
    exact = writer_of(cql_type, forms).write(out, padded, before, before + len(data))
    value, still = to_formed(cql_type, data, forms)
    assert exact is still
    encoder = Encoder(of_type(cql_type), "t", forms=forms)
    body = encoder.key(row(encoder.table, data))
    assert body is not None
    assert body[10:] == out.getvalue()
    assert (value is None) is (out.getvalue() == b"\0")


@pytest.mark.parametrize(
    ("kind", "data", "avro", "exact"),
    [
        # A union's branch, then the value: zig-zag for integers, a length before bytes, none before fixed.
        ("timestamp", "0000000000000001", "02 02", True),
        ("timestamp", "ffffc77cedd32800", "02 ffdfe6a2e2a01c", True),  # the year 1 begins
        ("timestamp", "ffffc77cedd327ff", "00", False),
        ("timestamp", "0000e677d21fdbff", "02 feeffea1fa9d73", True),  # the year 9999 ends
        ("timestamp", "0000e677d21fdc00", "00", False),
        ("timestamp", "4000000000000000", "00", False),
        ("timestamp", "8000000000000000", "00", False),
        ("date", "80000000", "02 00", True),
        ("date", "7ff506c6", "02 f3e457", True),
        ("date", "7ff506c5", "00", False),
        ("date", "802cc0a0", "02 c082e602", True),
        ("date", "802cc0a1", "00", False),
        ("date", "00000000", "00", False),
        ("date", "ffffffff", "00", False),
        ("time", "0000000000000001", "02 02", True),
        ("uuid", "00112233445566778899aabbccddeeff", "02 00112233445566778899aabbccddeeff", True),
        ("timeuuid", "00112233445516778899aabbccddeeff", "02 00112233445516778899aabbccddeeff", True),
        ("uuid", "0011", "00", False),
        ("varint", "00", "02 02 00", True),
        ("varint", "0000", "02 02 00", False),
        ("varint", "0080", "02 04 0080", True),
        ("varint", "ff80", "02 02 80", False),
        ("varint", "ff7f", "02 04 ff7f", True),
        ("varint", "ffffff", "02 02 ff", False),
        ("varint", "", "00", False),
        ("decimal", "0000000201f4", "02 04 04 01f4", True),  # 5.00
        ("decimal", "fffffffe05", "02 03 02 05", True),  # 5E+2
        ("decimal", "7fffffff00", "02 feffffff0f 02 00", True),
        ("decimal", "80000000ff", "02 ffffffff0f 02 ff", True),
        ("decimal", "000000020005", "02 04 02 05", False),
        ("decimal", "00000002", "00", False),
        ("decimal", "", "00", False),
    ],
)
def test_byte_cases(kind: str, data: str, avro: str, exact: bool) -> None:
    given = bytes.fromhex(data)
    out = BytesWriter()
    assert writer_of(CqlType(kind), OTHER).write(out, given, 0, len(given)) is exact
    assert out.getvalue().hex() == avro.replace(" ", "")


@pytest.mark.promise("avro-forms.same-values")
def test_the_default_is_what_it_was() -> None:
    """Schemas' ids from before there was a choice: they name schemas in every topic, for ever."""
    encoder = Encoder(TABLE, "app.cdc")
    assert (encoder.schema_id.hex(), encoder.key_schema_id.hex()) == ("e85e958e19ad0ea5", "6a9d486a88f9fb39")
    own = {encoder.schema_id, *(Encoder(TABLE, "app.cdc", forms=forms).schema_id for forms in ALL_FORMS)}
    assert len(own) == len(ALL_FORMS)


def test_a_table_without_such_columns_has_one_schema() -> None:
    plain = table({"k": "int"}, regular={"v": "text"})
    assert len({Encoder(plain, "t", forms=forms).schema_id for forms in ALL_FORMS}) == 1


def test_user_types_of_the_names_of_ours_keep_them_by_default() -> None:
    """`Uuid` and `Decimal` are reserved only where they are used; and every schema still parses."""
    udts = [
        CqlType("udt", (CqlType("uuid"), CqlType("decimal")), True, name, ("Uuid", "x")) for name in ("Uuid", "Decimal")
    ]
    awkward = of_type(CqlType("tuple", tuple(udts), frozen=True))
    assert '"name":"Uuid_2"' not in Encoder(awkward, "t").schema_text
    for forms in ALL_FORMS:
        encoder = Encoder(awkward, "t", forms=forms)
        parse_schema(json.loads(encoder.schema_text))
        uuid, decimal = bytes(range(16)), bytes.fromhex("0000000105")
        one = b"".join(len(part).to_bytes(4, "big") + part for part in (uuid, decimal))
        change = row(awkward, b"".join(len(part).to_bytes(4, "big") + part for part in (one, one)))
        assert decode(encoder.value(change), entries(encoder)) == change
    assert '"name":"Uuid_2"' in encoder.schema_text


@pytest.mark.promise("avro-forms.same-values")
@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("timestamp", (2**62).to_bytes(8, "big")),
        ("timestamp", (-(2**63)).to_bytes(8, "big", signed=True)),
        ("timestamp", (YEARS["timestamp"][1] + 1).to_bytes(8, "big")),
        ("date", bytes(4)),
        ("date", b"\xff" * 4),
    ],
)
def test_no_extreme_value_stops_a_stock_reader(kind: str, data: bytes) -> None:
    """As logical types they would raise in fastavro, and the reader never gets past the record: they are null, and
    `raw` has their bytes, by which our decoder gives back the exact value."""
    encoder = Encoder(of_type(CqlType(kind)), "t", forms=OTHER)
    known = entries(encoder)
    for change in (row(encoder.table, data), whole_range(encoder.table, data)):
        message = encoder.value(change)
        record = stock(message, known[encoder.schema_id].avro)
        assert record["key"]["p"] is None
        assert {(item["column"], item["where"]) for item in record["raw"]} >= {("p", "key")}
        assert all(item["bytes"] == data for item in record["raw"])
        assert decode(message, known) == change
    # The reason: the same bytes under a logical type that nobody bounded.
    integer, logical = ("long", "timestamp-millis") if kind == "timestamp" else ("int", "date")
    unbounded = parse_schema({"type": integer, "logicalType": logical})
    plain_body = Encoder(of_type(CqlType(kind)), "t").key(row(encoder.table, data))
    assert plain_body is not None
    with pytest.raises((OverflowError, ValueError)):
        schemaless_reader(io.BytesIO(plain_body[11:]), unbounded, None)


@pytest.mark.parametrize(
    "marked",
    [
        {"type": "fixed", "name": "U", "size": 37, "cql.type": "uuid"},
        {"type": "record", "name": "D", "fields": [{"name": "x", "type": "string"}], "cql.type": "decimal"},
    ],
)
def test_a_schema_that_claims_a_form_falsely_is_corrupt(marked: dict[str, Any]) -> None:
    """Anybody who may write to our topics can put any schema there: its messages are errors of ours, no others."""
    encoder = Encoder(table({"k": "int"}, regular={"v": "uuid"}), "t")
    schema = json.loads(encoder.schema_text)
    columns = next(field for field in schema["fields"] if field["name"] == "columns")
    columns["type"]["fields"][0]["type"] = ["null", marked]
    entry = replace(entries(encoder)[encoder.schema_id], avro=json.dumps(schema))
    message = encoder.value(row_of_plain(encoder.table))
    with pytest.raises(CorruptError):
        decode(message, {encoder.schema_id: entry})


def row_of_plain(of: Table) -> Change:
    cell = Cell(of.regular[0], None, 1, None, None, bytes(16))
    return Change(
        op=Op.UPDATE, table=of, token=1, key=bytes(4), clustering=(), cells=(cell,), source=SOURCE, digest=bytes(16)
    )
