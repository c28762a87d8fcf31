"""Rows read back by key: what Cassandra does not give of one is said of its change, and all others are merged."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest

import tailrace_spark.snapshot.read_back
from tailrace_schemas.change import Cell, Change, ColumnDeletion, Deletion, Marker, Op
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId
from tailrace_spark.rowstate.row import merge, state_of
from tailrace_spark.rowstate.visible import visible
from tailrace_spark.snapshot.changes import GRACE_MICROS
from tailrace_spark.snapshot.pace import Fault
from tailrace_spark.snapshot.read_back import Doubt, ReadBack, answer
from tailrace_spark.snapshot.reading import ForbiddenError, Page, PageError, UnreadableError
from tailrace_spark.snapshot.selection import statement_by_key
from tailrace_spark.snapshot.settings import SnapshotSettings
from tests.unit.spark.rowstate.counters import COUNTERS, Shard, context
from tests.unit.spark.snapshot.pages import columns_page
from tests.unit.tables import table

ORDERS = table({"id": "int"}, regular={"v": "text"}, name="orders", keyspace="shop")
MANY = 450
"""Columns of the table, more than a page of their names has."""
ROWS = table({"k": "int"}, {"c": "int"}, static={"s": "text"}, regular={"v": "int", "t": "set<int>"})
ASKED = 1_714_000_000_000_000
KEY = (7).to_bytes(4, "big")


@dataclass
class Answer:
    """A page that was asked for."""

    page: Page | None = None
    error: Exception | None = None

    def get(self) -> Page:
        if self.page is None:
            assert self.error is not None
            raise self.error
        return self.page


def page(columns: Sequence[Sequence[bytes | None]], following: bytes | None = None) -> Answer:
    return Answer(Page(columns_page(columns), 100, following, 1_000_000))


class Source:
    """Rows without a cell, but for those of `faults`, by their keys. `key` names that of the table now."""

    def __init__(self, faults: dict[int, Exception], key: str = "id") -> None:
        self._faults = faults
        self._key = key
        self.requests = 0

    def select(
        self,
        statement: str,
        values: Sequence[bytes | None],
        rows: int,
        paging_state: bytes | None = None,
        host: str | None = None,
    ) -> Answer:
        del host
        if "system_schema.tables" in statement:
            return page([[ORDERS.id.bytes]])
        if "system_schema.columns" in statement:
            begin = int(paging_state or b"0")
            end = min(MANY, begin + rows)
            names = [f"c{number}".encode() for number in range(begin, end)]
            kinds, positions = [b"regular"] * len(names), [struct.pack(">i", -1)] * len(names)
            if not begin:
                names, kinds = [*names, self._key.encode()], [*kinds, b"partition_key"]
                positions = [*positions, struct.pack(">i", 0)]
            return page([kinds, positions, names], str(end).encode() if end < MANY else None)
        self.requests += 1
        if f" WHERE {self._key} = ?" not in statement:
            raise ServiceError("Cassandra refuses to read: Undefined column name")
        [key] = struct.unpack(">i", values[0] or b"")
        if isinstance(fault := self._faults.get(key), ForbiddenError):
            raise fault  # as where the statement is prepared
        if fault is not None:
            return Answer(error=fault)
        assert f"c{MANY - 1}" in statement
        return page([[values[0]], *[[None]] * MANY], b"behind")  # a node does not know yet that nothing follows


def removal(key: int) -> Delivered:
    """A change that leaves open whether its row is still there."""
    gone = Cell(ORDERS.columns[0], None, 5, None, 5, None)
    change = Change(op=Op.UPDATE, table=ORDERS, token=key, key=struct.pack(">i", key), cells=(gone,))
    return Delivered(RecordId("t.shop.orders", 0, key), change, message=b"m%d" % key)


def added(monkeypatch: pytest.MonkeyPatch, source: Source, changes: tuple[Delivered, ...]) -> list[Piece]:
    """A piece of these changes, and what is read back of their rows."""

    @contextmanager
    def connected(_: SnapshotSettings) -> Iterator[Source]:
        yield source

    monkeypatch.setattr(tailrace_spark.snapshot.read_back, "page_source", connected)
    settings = SnapshotSettings(table="system.local", rows="changes", attempts=3, retry_seconds=0.001)
    return list(ReadBack(settings, frozenset([str(ORDERS)]), counters=True).added([Piece(changes)]))


@pytest.mark.promise("snapshot.unreadable")
@pytest.mark.parametrize(
    "fault",
    [
        PageError(Fault.FAILED, "1 failures: READ_TOO_MANY_TOMBSTONES from /127.0.0.1:7000"),
        UnreadableError("Cassandra masks shop.orders.v for this role"),
        ForbiddenError("Cassandra refuses to read: User reader has no SELECT permission on <table shop.orders>"),
    ],
    ids=["tombstones", "masked", "forbidden"],
)
def test_a_row_that_cassandra_does_not_give_is_a_dead_letter_and_the_others_are_read(
    monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    source = Source({2: fault})
    changes = tuple([removal(key) for key in range(4)])
    merged, answered = added(monkeypatch, source, changes)
    assert merged.changes == changes
    assert [(read.change.op, read.change.key) for read in answered.changes] == [
        (Op.READ, changes[key].change.key) for key in (0, 1, 3)
    ]
    [letter] = answered.dead_letters
    assert (letter.record_id, letter.message) == (changes[2].record_id, b"m2")
    assert str(fault) in letter.reason
    assert f"tailrace compare {ORDERS} --repair" in letter.reason
    assert source.requests < 10


def test_a_row_is_asked_for_by_the_names_that_its_key_has_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its change may have been written before `ALTER TABLE ... RENAME`."""
    _, answered = added(monkeypatch, Source({}, key="number"), (removal(1),))
    assert [read.change.marker is not None for read in answered.changes] == [True]


def change(
    of: Table = ROWS, op: Op = Op.UPDATE, *, values: dict[str, bytes | None] | None = None, **more: object
) -> Change:
    columns = {column.name: column for column in of.columns}
    cells = [Cell(columns[name], None, 5, None, None, value) for name, value in (values or {}).items()]
    made = Change(op=op, table=of, token=1, key=KEY, clustering=(KEY,) if of.clustering else (), cells=tuple(cells))
    return replace(made, **more)  # type: ignore[arg-type]  # of a change's fields


def delivered(of: Change, offset: int = 0) -> Delivered:
    return Delivered(RecordId("t", 0, offset), of)


def doubts(*changes: Change, counters: bool = True) -> list[Doubt]:
    read_back = ReadBack(SnapshotSettings(table="system.local"), frozenset([str(ROWS), str(COUNTERS)]), counters)
    by_table = read_back.doubts([delivered(of, offset) for offset, of in enumerate(changes)])
    return [doubt for rows in by_table.values() for doubt in rows]


@pytest.mark.parametrize(
    ("of", "open_"),
    [
        (change(values={"v": None}), True),
        (change(column_deletions=(ColumnDeletion(ROWS.regular[1], Deletion(5, 1)),)), True),
        (change(values={"v": b"\0\0\0\1"}), False),
        (change(values={"v": None}, marker=Marker(5)), False),
        (change(op=Op.INSERT, values={"v": None}, marker=Marker(5)), False),
        (change(op=Op.DELETE, deletion=Deletion(5, 1)), False),
        (change(op=Op.READ, values={"v": None}), False),
        (change(values={"s": None}, static=True, clustering=None), False),
        (change(table({"k": "int"}, regular={"v": "int"}, name="other"), values={"v": None}), False),
    ],
)
def test_rows_are_in_doubt_where_a_change_deletes_cells_and_sets_none(of: Change, open_: bool) -> None:
    assert bool(doubts(of)) is open_


def test_a_row_is_asked_for_once_by_its_key() -> None:
    [doubt] = doubts(change(values={"v": None}), change(values={"v": None}))
    assert doubt.delivered.record_id.offset == 1
    assert doubt.values == [KEY, KEY]
    assert statement_by_key(ROWS, ["k", "c"], ["v", "t"], static=False) == (
        f"SELECT k, v, t FROM {ROWS.keyspace}.{ROWS.name} WHERE k = ? AND c = ?"
    )
    assert statement_by_key(ROWS, ["k"], ["s"], static=True).endswith("WHERE k = ? LIMIT 1")


def test_a_row_that_select_returns_without_a_cell_gets_a_marker_and_others_get_nothing() -> None:
    [doubt] = doubts(change(values={"v": None}))
    assert answer(doubt, ["v", "t"], None, ASKED) is None
    assert answer(doubt, ["v", "t"], [None, b"\0\0\0\0"], ASKED) is None
    read = answer(doubt, ["v", "t"], [None, None], ASKED)
    assert read is not None
    assert read.change.marker == Marker(ASKED - GRACE_MICROS)
    assert read.record_id == doubt.delivered.record_id
    assert visible(merge(state_of(doubt.delivered.change), state_of(read.change)), ROWS) == {}


def test_a_total_stands_for_all_shards_until_a_later_one_is_read() -> None:
    def value(count: int) -> bytes:
        return codec(CqlType("bigint")).encode(count)

    column = COUNTERS.regular[0]
    logged = change(COUNTERS, values={column.name: context(Shard(1, 90, 4))})
    [doubt] = doubts(logged)
    assert doubt.written == 5
    assert doubts(logged, counters=False) == []
    first, second = (answer(doubt, [column.name], [value(count)], ASKED + count) for count in (-3, 1000))
    assert first is not None
    assert second is not None
    states = [state_of(each) for each in (logged, second.change, first.change)]
    assert visible(merge(states[0], states[2]), COUNTERS) == {column.name: -3}
    assert visible(merge(merge(states[0], states[1]), states[2]), COUNTERS) == {column.name: 1000}
    # A deletion that is as late as the count takes both.
    state = merge(states[0], states[1])
    state.shadow(Deletion(5, 1))
    assert visible(state, COUNTERS) is None
