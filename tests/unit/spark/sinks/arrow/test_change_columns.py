"""Changes taken apart into columns: as their records have them, whatever the bytes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace_schemas.change import Cell, Change, Deletion, Marker, Op
from tailrace_schemas.cql.numeric import minimal
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec, join_key
from tailrace_schemas.streams import Assignment
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId
from tailrace_spark.sinks.arrow.change_batch import change_batch
from tailrace_spark.sinks.arrow.change_columns import ChangeColumns, Ends, fill
from tailrace_spark.sinks.arrow.schema import arrow_schema
from tailrace_spark.sinks.arrow.types import history_schema
from tailrace_spark.sinks.arrow.values import array_of
from tailrace_spark.sinks.changelog.sink import ChangeLogSink, OutgoingRecord, RecordForm
from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tailrace_spark.sinks.delta.store import DeltaStore
from tailrace_spark.sinks.lake.history import HistoryLimits, LakeHistory
from tailrace_spark.sinks.lake.history_table import Route, rows_of
from tailrace_spark.sinks.lake.records import change_records
from tailrace_spark.sinks.lake.store import LakeStore
from tests.unit.schemas.avro.test_messages import COLUMNS, SOURCE, TABLE, row_changes, seconds, times
from tests.unit.spark.cassandra import Log

NUMBERS = arrow_schema(TABLE)
ROUTE = Route(TABLE, NUMBERS, NUMBERS, history_schema(NUMBERS), "ks.t")
FORM = RecordForm(TABLE)
LARGE = 1 << 20
SIMPLE = [column for column in COLUMNS.values() if not column.type.multicell]
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


def rows(some: Sequence[Delivered]) -> pa.RecordBatch:
    """What is there of changes, made of their records."""
    return rows_of(ROUTE, [OutgoingRecord(one.record_id, one.change, one.assignment, FORM) for one in some])


def said(batch: pa.RecordBatch) -> tuple[str, list[object]]:
    """All that is in it; a NaN by its bits."""
    return repr(batch.to_pylist()), list(change_records("ks.t", pa.Table.from_batches([batch])))


def same_rows(changes: Sequence[Change]) -> list[Delivered]:
    """The changes that went through the columns, which are there as their records have them."""
    columns = ChangeColumns(TABLE, len(changes), LARGE)
    taken = [one for one in delivered(changes) if columns.add(one)]
    assert columns.taken == taken
    if not taken:
        return []
    batch, odd = change_batch(columns, ROUTE.numbers, ROUTE.schema)
    batch.validate(full=True)
    good = [one for row, one in enumerate(taken) if row not in odd]
    expected = rows(good)
    assert batch.schema == expected.schema
    assert said(batch) == said(expected)
    return good


@pytest.mark.promise("delta.values")
@pytest.mark.slow
@settings(max_examples=40)
@given(st.lists(row_changes(), min_size=1, max_size=6))
def test_columns_say_what_records_say_whatever_the_bytes(changes: list[Change]) -> None:
    same_rows(changes)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(whole_changes(), min_size=1, max_size=6))
def test_columns_say_what_records_say_of_any_values(changes: list[Change]) -> None:
    same_rows(changes)


@pytest.mark.parametrize("column", [column for column in SIMPLE if column not in TABLE.static], ids=lambda c: c.name)
def test_every_simple_type_has_a_column(column: object) -> None:
    """Ordinary values are never left to records."""
    plain = {
        "a": 7, "b": "größer", "c": b"\x00\xff", "d": "1.50", "e": "-12345678901234567890", "f": 1.5, "g": -0.1,
        "h": True, "i": "::1", "j": {"months": 1, "days": 2, "nanoseconds": 3},
        "k": "01234567-89ab-cdef-0123-456789abcdef", "q": {"street": "x", "zip": 3}, "r": {"f0": 1, "f1": "y"},
        "t": [1, 2], "u": 20_000, "v": 5, "w": -1, "x": [{"key": 1, "value": "z"}], "y": b"abc", "z": -2,
        "_x 1": 2**60,
    }  # fmt: skip
    name = next(name for name, one in COLUMNS.items() if one is column)
    value = plain[name]
    if name == "q":
        value = codec(COLUMNS["q"].type).decode(
            codec(COLUMNS["q"].type).encode(dict.fromkeys(COLUMNS["q"].type.fields))
        )
    log = Log(TABLE)
    changes = [log.insert((1, "x"), (1_700_000_000_000, "1"), at, **{name: value}) for at in (1_000, 2_000)]
    assert len(same_rows(changes)) == 2


def test_what_only_records_can_say_is_left() -> None:
    """Among others, and some that are there already; none is lost."""
    log = Log(TABLE)
    key, row = (1, "x"), (1_700_000_000_000, "1")
    good = log.insert(key, row, 1, a=1)
    bad = replace(good, cells=(replace(good.cells[0], value=b"\x00"),))
    changes = delivered([good, log.update(key, row, 1, o={"x": True}), log.delete_range(key, row, row, 1), bad, good])
    columns, left, ends = ChangeColumns(TABLE, 10, LARGE), list[Delivered](), Ends(lambda *_: 1, lambda *_: ())
    assert fill(columns, changes, 0, ends, left) == 5
    assert columns.taken == [changes[3], changes[4]]
    assert left == changes[:3]
    assert ends.moved == {("app.ks.t", 0): 4, ("app.ks.t", 1): 5}
    batch, odd = change_batch(columns, ROUTE.numbers, ROUTE.schema)
    assert (odd, len(batch)) == ([0], 1)


@pytest.mark.parametrize(
    "data", ["0000000100ff", "00000001007f", "00000001ff80", "00000001ff7f", "0000000100", "00000001ff"]
)
def test_numbers_whose_bytes_are_longer_than_need_be_are_left(data: str) -> None:
    """Their text alone would give back other bytes."""
    change = Log(TABLE).insert((1, "x"), (0, "1"), 1, d="1.5")
    octets = bytes.fromhex(data)
    minimal_ = octets[4:] == minimal(int.from_bytes(octets[4:], "big", signed=True))
    columns = ChangeColumns(TABLE, 1, LARGE)
    assert columns.add(delivered([replace(change, cells=(replace(change.cells[0], value=octets),))])[0]) is minimal_


def test_columns_that_are_full_take_no_more() -> None:
    log = Log(TABLE)
    changes = delivered([log.insert((1, "x"), (at, "1"), 1, a=at) for at in range(5)])
    columns, left = ChangeColumns(TABLE, 3, LARGE), list[Delivered]()
    assert fill(columns, changes, 1, Ends(lambda *_: 0, lambda *_: ()), left) == 4
    assert columns.taken == changes[1:4]
    assert left == []


def test_large_values_end_a_group_sooner() -> None:
    """Bytes of keys, clusterings and values count; a change that is left out does not."""
    log, columns, left = Log(TABLE), ChangeColumns(TABLE, 10, 40), list[Delivered]()
    small = log.insert((1, "x"), (0, "1"), 5, a=1)
    large = log.insert((1, "x"), (1, "1"), 5, b="y" * 40)
    varint = log.insert((1, "x"), (1, "1"), 5, e="1")
    odd = replace(varint, cells=(replace(varint.cells[0], value=bytes(60) + b"\x01"),))
    changes = delivered([odd, small, large, small])
    ends = Ends(lambda *_: 0, lambda *_: ())
    assert fill(columns, changes, 0, ends, left) == 3
    assert [one.change for one in columns.taken] == [small, large]
    assert columns.full
    assert [one.change for one in left] == [odd]


class _Counting:
    """A store that counts the rows of each record batch of its commits."""

    def __init__(self, store: DeltaStore) -> None:
        self._store = store
        self.groups: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def append(self, name: str, stored: Any, rows: Any, *more: Any, **named: Any) -> None:
        batches = list(rows)
        self.groups += [len(batch) for batch in batches]
        self._store.append(name, stored, pa.RecordBatchReader.from_batches(rows.schema, batches), *more, **named)


@pytest.mark.parametrize("limits", [HistoryLimits(changes=3), HistoryLimits(bytes=60)], ids=["changes", "bytes"])
def test_more_than_columns_take_at_once_are_all_there(tmp_path: Path, limits: HistoryLimits) -> None:
    log = Log(TABLE)
    good = [log.insert((1, "x"), (at, "1"), at, a=at) for at in range(1, 8)]
    odd = [replace(one, cells=(replace(one.cells[0], value=b"odd"),)) for one in good]
    changes = delivered([*good[:5], *odd, *good[5:]])
    store = DeltaStore(DeltaSinkSettings(path=str(tmp_path)))
    counting = _Counting(store)
    with closing(ChangeLogSink(LakeHistory(cast("LakeStore", counting), limits))) as sink:
        assert sink.write([Piece(tuple(changes[:6])), Piece(tuple(changes[6:]))]).rows == 14
        assert sink.write([Piece(tuple(changes))]).rows == 0
    stored = store.open("ks.t")
    assert stored is not None
    found = {
        (record["partition"], record["offset"]): record
        for record in change_records("ks.t", stored.delta.to_pyarrow_table())
    }
    wanted = {(r["partition"], r["offset"]): r for r in change_records("ks.t", pa.Table.from_batches([rows(changes)]))}
    assert found == wanted
    assert len(counting.groups) > 1
    assert max(counting.groups) == 3


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("ascii", [b"", b"a~"], [b"\xc3\xa9", b"\xff"]),
        ("text", [b"", "é".encode()], [b"\xff", b"\xed\xa0\x80"]),
        ("timeuuid", [bytes(range(16))], [b"", b"x", bytes(17)]),
        ("boolean", [b"\x00", b"\x01"], [b"", b"\x02"]),
        ("int", [b"\xff\xff\xff\xfe"], [b"", b"123"]),
        ("double", [NAN, b"\x3f\xf0" + bytes(6)], [b"", bytes(7)]),
    ],
)
def test_what_bytes_do_not_say_is_told(kind: str, good: list[bytes], bad: list[bytes]) -> None:
    """Row by row; the others are what the type's codec makes of them."""
    of = CqlType(kind)
    values = [None, *bad, *good, None]
    array, odd = array_of(of, values)
    assert odd is not None
    assert [row for row, is_odd in enumerate(odd) if is_odd] == list(range(1, 1 + len(bad)))
    kept = [None if value is None else codec(of).decode(value) for value in (None, *good, None)]
    assert repr(array.filter(pa.array(~odd)).to_pylist()) == repr(kept)
    assert array_of(of, good)[1] is None
