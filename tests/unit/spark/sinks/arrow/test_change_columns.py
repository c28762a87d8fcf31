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

from tailrace_schemas.change import Change
from tailrace_schemas.cql.numeric import minimal
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec
from tailrace_spark.batch.delivery import Delivered, Piece
from tailrace_spark.sinks.arrow.change_columns import ChangeColumns, Ends, fill
from tailrace_spark.sinks.arrow.schema import arrow_schema
from tailrace_spark.sinks.arrow.types import history_schema
from tailrace_spark.sinks.arrow.values import array_of, change_batch
from tailrace_spark.sinks.changelog.sink import ChangeLogSink, OutgoingRecord, RecordForm
from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tailrace_spark.sinks.delta.store import DeltaStore
from tailrace_spark.sinks.lake.history import HistoryLimits, LakeHistory
from tailrace_spark.sinks.lake.history_table import Route, rows_of
from tailrace_spark.sinks.lake.store import LakeStore
from tailrace_spark.sinks.protocol import write_here
from tests.properties import examples
from tests.support.every_type import COLUMNS, TABLE, row_changes
from tests.support.history_records import change_records
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.arrow.whole_changes import NAN, delivered, whole_changes

NUMBERS = arrow_schema(TABLE)
ROUTE = Route(TABLE, NUMBERS, NUMBERS, history_schema(NUMBERS), "ks.t")
FORM = RecordForm(TABLE)
LARGE = 1 << 20
SIMPLE = [column for column in COLUMNS.values() if not column.type.multicell]


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
@settings(max_examples=examples(16))
@given(st.lists(row_changes(), min_size=1, max_size=6))
def test_columns_say_what_records_say_whatever_the_bytes(changes: list[Change]) -> None:
    same_rows(changes)


@pytest.mark.slow
@settings(max_examples=examples(24))
@given(st.lists(whole_changes(), min_size=1, max_size=6))
def test_columns_say_what_records_say_of_any_values(changes: list[Change]) -> None:
    same_rows(changes)


@pytest.mark.slow
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


def test_large_values_end_a_group_sooner() -> None:
    """Bytes of keys, clusterings and values count; a change that is left out does not."""
    log, columns, left = Log(TABLE), ChangeColumns(TABLE, 10, 40), list[Delivered]()
    small = log.insert((1, "x"), (0, "1"), 5, a=1)
    large = log.insert((1, "x"), (1, "1"), 5, b="y" * 40)
    varint = log.insert((1, "x"), (1, "1"), 5, e="1")
    odd = replace(varint, cells=(replace(varint.cells[0], value=bytes(60) + b"\x01"),))
    changes = delivered([odd, small, large, small])
    ends = Ends(lambda *_: 0)
    assert fill(columns, changes, 0, ends, left) == 3
    assert [one.change for one in columns.taken] == [small, large]
    assert columns.full
    assert [one.change for one in left] == [odd]


class _Counting:
    """A store that counts the rows of each record batch that it stages."""

    def __init__(self, store: DeltaStore) -> None:
        self._store = store
        self.groups: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def stage(self, name: str, stored: Any, rows: Any, *, here: bool) -> Any:
        batches = list(rows)
        self.groups += [len(batch) for batch in batches]
        return self._store.stage(name, stored, pa.RecordBatchReader.from_batches(rows.schema, batches), here=here)


@pytest.mark.slow
@pytest.mark.parametrize("limits", [HistoryLimits(changes=3), HistoryLimits(bytes=60)], ids=["changes", "bytes"])
def test_more_than_columns_take_at_once_are_all_there(tmp_path: Path, limits: HistoryLimits) -> None:
    log = Log(TABLE)
    good = [log.insert((1, "x"), (at, "1"), at, a=at) for at in range(1, 8)]
    odd = [replace(one, cells=(replace(one.cells[0], value=b"odd"),)) for one in good]
    changes = delivered([*good[:5], *odd, *good[5:]])
    store = DeltaStore(DeltaSinkSettings(path=str(tmp_path)))
    counting = _Counting(store)
    with closing(ChangeLogSink(LakeHistory(cast("LakeStore", counting), limits))) as sink:
        assert write_here(sink, [Piece(tuple(changes[:6])), Piece(tuple(changes[6:]))]).rows == 14
        assert write_here(sink, [Piece(tuple(changes))]).rows == 0
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


def test_large_edits_wait_for_no_others(tmp_path: Path) -> None:
    """2,000 of them, as many as small ones, would fill the memory of any machine."""
    edits = [Log(TABLE).update((1, "x"), (at, "1"), at, o={"x" * 20_000: ""}) for at in range(1, 13)]
    counting = _Counting(DeltaStore(DeltaSinkSettings(path=str(tmp_path))))
    history = LakeHistory(cast("LakeStore", counting), HistoryLimits(bytes=80_000))
    with closing(ChangeLogSink(history)) as sink:
        assert write_here(sink, [Piece(tuple(delivered(edits)))]).rows == 12
    assert counting.groups == [4, 4, 4]


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
