"""Rows read back by key: what Cassandra does not give of one is said of its change, and all others are merged."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

import tailrace_spark.snapshot.read_back
from tailrace_schemas.change import Cell, Change, Op
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId
from tailrace_spark.snapshot.pace import Fault
from tailrace_spark.snapshot.read_back import ReadBack
from tailrace_spark.snapshot.reading import Page, PageError, UnreadableError
from tailrace_spark.snapshot.settings import SnapshotSettings
from tests.unit.spark.snapshot.pages import columns_page
from tests.unit.tables import table

ORDERS = table({"id": "int"}, regular={"v": "text"}, name="orders", keyspace="shop")
MANY = 450
"""Columns of the table, more than a page of their names has."""


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
    """Rows without a cell, but for those of `faults`, by their keys."""

    def __init__(self, faults: dict[int, Exception]) -> None:
        self._faults = faults
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
            return page([names, [b"regular"] * len(names)], str(end).encode() if end < MANY else None)
        self.requests += 1
        [key] = struct.unpack(">i", values[0] or b"")
        if key in self._faults:
            return Answer(error=self._faults[key])
        assert f"c{MANY - 1}" in statement
        return page([[values[0]], *[[None]] * MANY], b"behind")  # a node does not know yet that nothing follows


def removal(key: int) -> Delivered:
    """A change that leaves open whether its row is still there."""
    gone = Cell(ORDERS.columns[0], None, 5, None, 5, None)
    change = Change(op=Op.UPDATE, table=ORDERS, token=key, key=struct.pack(">i", key), cells=(gone,))
    return Delivered(RecordId("t.shop.orders", 0, key), change, message=b"m%d" % key)


@pytest.mark.promise("snapshot.unreadable")
@pytest.mark.parametrize(
    "fault",
    [
        PageError(Fault.FAILED, "1 failures: READ_TOO_MANY_TOMBSTONES from /127.0.0.1:7000"),
        UnreadableError("Cassandra masks shop.orders.v for this role"),
    ],
    ids=["tombstones", "masked"],
)
def test_a_row_that_cassandra_does_not_give_is_a_dead_letter_and_the_others_are_read(
    monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    source = Source({2: fault})

    @contextmanager
    def connected(_: SnapshotSettings) -> Iterator[Source]:
        yield source

    monkeypatch.setattr(tailrace_spark.snapshot.read_back, "page_source", connected)
    settings = SnapshotSettings(table="system.local", rows="changes", attempts=3, retry_seconds=0.001)
    read_back = ReadBack(settings, frozenset([str(ORDERS)]), counters=True)
    changes = tuple([removal(key) for key in range(4)])
    merged, answered = read_back.added([Piece(changes)])
    assert merged.changes == changes
    assert [(read.change.op, read.change.key) for read in answered.changes] == [
        (Op.READ, changes[key].change.key) for key in (0, 1, 3)
    ]
    [letter] = answered.dead_letters
    assert (letter.record_id, letter.message) == (changes[2].record_id, b"m2")
    assert str(fault) in letter.reason
    assert f"tailrace compare {ORDERS} --repair" in letter.reason
    assert source.requests < 10
