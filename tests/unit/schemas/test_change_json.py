"""The JSON form of a change: nothing lost, whatever the bytes; wrong values are told."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tailrace_schemas.avro import Encoder, decode, entry_from_record, schema_records
from tailrace_schemas.change import Cell, Change, Marker, Op
from tailrace_schemas.change_json import ChangeForms, ChangeJson
from tailrace_schemas.cql.json_value import plain
from tailrace_schemas.errors import CorruptError
from tailrace_schemas.table_json import table_from_json
from tests.support.every_type import COLUMNS, ENCODER, INSERT, KEY, SCHEMAS, SOURCE, TABLE, row_changes
from tests.unit.spark.changes import PLAIN, partition_changes
from tests.unit.tables import table

FORM = ChangeJson(TABLE)


def there_and_back(form: ChangeJson, change: Change) -> Change:
    """Through text, as a reader elsewhere has it."""
    return form.read(json.loads(json.dumps(form.write(change), ensure_ascii=False, allow_nan=False)))


@pytest.mark.slow
@given(row_changes())
def test_a_row_change_comes_back_as_its_message_does(change: Change) -> None:
    decoded = decode(ENCODER.value(change), SCHEMAS)
    assert there_and_back(FORM, change) == decoded
    assert there_and_back(FORM, decoded) == decoded


PLAIN_ENCODER = Encoder(PLAIN, "p")
PLAIN_SCHEMAS = {key: entry_from_record(key, value) for key, value in schema_records(PLAIN_ENCODER, "p.ks.t")}


@pytest.mark.slow
@given(partition_changes(PLAIN))
def test_deletions_of_ranges_and_partitions_come_back(change: Change) -> None:
    assume(change.marker or change.deletion or change.cells or change.column_deletions)
    whole = replace(change, source=SOURCE, digest=bytes(16))
    assert there_and_back(ChangeJson(PLAIN), whole) == decode(PLAIN_ENCODER.value(whole), PLAIN_SCHEMAS)


FLOATS = table({"id": "int"}, regular={"f": "float", "d": "double", "v": "frozen<list<double>>"})


@pytest.mark.slow
@given(st.binary(min_size=4, max_size=4), st.binary(min_size=8, max_size=8))
def test_every_float_comes_back_bit_for_bit(single: bytes, double: bytes) -> None:
    f, d, v = (next(c for c in FLOATS.regular if c.name == name) for name in "fdv")
    listed = struct.pack(">ii", 1, 8) + double
    values = ((d, double), (f, single), (v, listed))
    cells = tuple(Cell(column, None, 1, None, None, value) for column, value in values)
    change = Change(
        op=Op.INSERT, table=FLOATS, token=1, key=b"\0\0\0\1", clustering=(), marker=Marker(1), cells=cells,
        source=SOURCE, digest=bytes(16),
    )  # fmt: skip
    assert there_and_back(ChangeJson(FLOATS), change) == change


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        ("7ff8000000000000", '"nan"'),
        ("fff8000000000000", '"nan:fff8000000000000"'),
        ("7ff8000000000001", '"nan:7ff8000000000001"'),
        ("7ff0000000000000", '"inf"'),
        ("fff0000000000000", '"-inf"'),
        ("8000000000000000", "-0.0"),
    ],
)
def test_floats_that_json_lacks_have_names(bits: str, text: str) -> None:
    assert json.dumps(plain(struct.unpack(">d", bytes.fromhex(bits))[0])) == text


def test_the_form_is_the_record_with_names() -> None:
    """Columns that were not written are left out; bytes are hexadecimal digits."""
    value = FORM.write(INSERT)
    assert list(value)[:3] == ["table", "op", "token"]
    assert value["key"] == {"pk": 7, "who": "me", "ck": 1700000000000, "n": "5"}
    columns = value["columns"]
    assert isinstance(columns, dict)
    assert sorted(columns) == ["a", "b", "e", "m", "p", "z"]
    assert columns["m"]["set"] == [{"path": "6b6579", "key": "key", "value": [1]}]
    assert value["digest"] == "64" * 16


def test_members_of_its_own_are_left_alone() -> None:
    placed = {"topic": "t", "partition": 3, "offset": 5, **FORM.write(INSERT), "more": [1]}
    assert FORM.read(placed) == FORM.read(FORM.write(INSERT))


def test_what_a_segment_does_not_tell_of_the_source_is_empty() -> None:
    value = FORM.write(
        replace(
            INSERT, source=replace(SOURCE, host="", datacenter="", position=replace(SOURCE.position, epoch=0), seen=0)
        )
    )
    source = value["source"]
    assert isinstance(source, dict)
    cut = {**value, "source": {name: source[name] for name in ("segment", "offset", "index", "count")}}
    assert FORM.read(cut) == FORM.read(value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"op": "upsert"},
        {"digest": "xyz"},
        {"digest": 5},
        {"source": None},
        {"source": {"segment": 1}},
        {"key": {"pk": None, "who": "me"}},
        {"key": {"pk": "seven", "who": "me"}},
        {"columns": {"a": "x"}},
        {"columns": {"g": True}},
        {"columns": {"m": {"deleted_at": None}}},
        {"columns": [1]},
        {"range": {"start": {"count": 1}}},
        {"written": None, "op": "delete_partition", "deleted": 7},
    ],
)
def test_what_is_no_change_says_so(wrong: dict[str, object]) -> None:
    with pytest.raises(CorruptError, match=f"{TABLE}: "):
        FORM.read({**FORM.write(INSERT), **wrong})


def test_a_missing_member_says_so() -> None:
    value = FORM.write(INSERT)
    for name in ("op", "token", "written", "digest", "columns", "deleted", "source"):
        with pytest.raises(CorruptError):
            FORM.read({key: part for key, part in value.items() if key != name})


def test_forms_are_made_once() -> None:
    forms = ChangeForms()
    assert forms.of(TABLE) is forms.of(TABLE)
    assert forms.of(PLAIN).table is PLAIN


def test_the_example_of_the_document_is_read() -> None:
    text = (Path(__file__).parents[3] / "docs/change-json.md").read_text(encoding="utf-8")
    definition, value = (json.loads(block) for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL)[:2])
    change = ChangeJson(table_from_json(definition)).read(value)
    assert change.op is Op.UPDATE
    assert [cell.value for cell in change.cells] == [b"4711", b"", None]
    assert change.key == b"ann"


def test_cells_of_another_time_come_back() -> None:
    """The record's own time stands once; others stand by their cells."""
    cell = Cell(COLUMNS["a"], None, 7, 60, 1_700_000_000, b"\0\0\0\1")
    change = Change(
        op=Op.INSERT, table=TABLE, token=1, key=KEY, clustering=(bytes(8), b"\1"), marker=Marker(5), cells=(cell,),
        source=SOURCE, digest=bytes(16),
    )  # fmt: skip
    assert FORM.write(change)["cells"] == [
        {"column": "a", "path": None, "written": 7, "ttl": 60, "expires": 1_700_000_000}
    ]
    assert there_and_back(FORM, change) == change
