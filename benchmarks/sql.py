"""Changes a second into PostgreSQL: new rows, the same again, and rows that are read and merged; and a plain COPY.

Usage: python -m benchmarks.sql [changes] [rounds]. In one run, since the machine is never as busy twice; the COPY of
the same visible rows into a table with the same keys is the limit of what this PostgreSQL does at all. The time that
both sides computed for a change says what two cores of their own could do.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from tailrace_common.build import describe
from tailrace_schemas.change import Change
from tailrace_schemas.streams import Assignment
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId
from tailrace_spark.sinks.calendar import timestamp_text
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.postgres import new_database
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

PIECE = 2_000
BATCH = 20_000
STREAM = Assignment(1_760_000_000_000, bytes(range(16)))
WRITTEN = 1_760_000_000_000_000
ORDERS = table(
    {"customer": "text"}, {"number": "int"}, {},
    {"note": "text", "lines": "int", "cents": "bigint", "amount": "decimal", "placed": "timestamp", "weight": "double"},
    keyspace="shop", name="orders",
)  # fmt: skip
PLAIN_COPY = """CREATE TABLE plain (customer text, number int, note text, lines int, cents bigint, amount numeric,
placed timestamptz, weight double precision, PRIMARY KEY (customer, number))"""


class Cost(NamedTuple):
    """Of some changes: seconds that passed, that this process computed, and that PostgreSQL did."""

    passed: float
    own: float
    database: float


def main(changes: int = 200_000, rounds: int = 2) -> None:
    """Print one line for each way, the best of some rounds."""
    print(f"{changes:,} changes of rows of 8 columns, {BATCH:,} in a batch, {describe()}\n")
    print(f"{'':40}{'changes/s':>12}{'us here':>12}{'us PostgreSQL':>16}")
    best: dict[str, Cost] = {}
    for _ in range(rounds):
        for name, cost in _round(changes):
            best[name] = Cost(*map(min, cost, best.get(name, cost)))
    for name, cost in best.items():
        own, database = (seconds / changes * 1e6 for seconds in (cost.own, cost.database))
        print(f"{name:40}{changes / cost.passed:12,.0f}{own:12.1f}{database:16.1f}")


def _round(changes: int) -> Iterator[tuple[str, Cost]]:
    url = new_database()
    log = Log(ORDERS)
    yield "plain COPY of the same rows", _plain(url, changes)
    sink = SqlSink(url)
    write_here(sink, [Piece((_delivered(log.insert(("nobody",), (0,), WRITTEN), 0),))])  # the tables are there already
    inserted = [insert_of(log, n, WRITTEN + n) for n in range(changes)]
    yield "new rows: the fast path", _timed(sink, inserted)
    yield "the same again: nothing changes", _timed(sink, inserted)
    del inserted
    updated = [log.update(*key_of(n), WRITTEN + changes + n, cents=n, note=f"changed {n}") for n in range(changes)]
    yield "rows that are there: read and merged", _timed(sink, updated)
    sink.close()


def insert_of(log: Log, number: int, written: int) -> Change:
    """The INSERT of a row, at a time in microseconds."""
    key, clustering = key_of(number)
    return log.insert(key, clustering, written, **values_of(number))


def key_of(number: int) -> tuple[tuple[str], tuple[int]]:
    """Keys in no order, four rows to a partition."""
    mixed = number * 7919 % 1_000_003
    return (f"customer-{mixed // 4:08}",), (mixed % 4,)


def values_of(number: int) -> dict[str, object]:
    return {
        "amount": f"{number}.50", "cents": number * 100, "lines": number % 9, "note": f"words about order {number}",
        "placed": 1_760_000_000_000 + number, "weight": number / 8,
    }  # fmt: skip


def _timed(sink: SqlSink, changes: Sequence[Change]) -> Cost:
    delivered = [_delivered(change, offset) for offset, change in enumerate(changes)]
    batches = [_pieces(delivered[at : at + BATCH]) for at in range(0, len(delivered), BATCH)]
    return _cost(lambda: [write_here(sink, batch) for batch in batches])


def _pieces(delivered: Sequence[Delivered]) -> list[Piece]:
    return [Piece(tuple(delivered[at : at + PIECE])) for at in range(0, len(delivered), PIECE)]


def _delivered(change: Change, offset: int) -> Delivered:
    return Delivered(RecordId("t.shop.orders", 0, offset, b"12345678"), change, STREAM)


def _plain(url: str, changes: int) -> Cost:
    rows = [(*key_of(n)[0], *key_of(n)[1], *values_of(n).values()) for n in range(changes)]
    rows = [(*row[:6], timestamp_text(int(str(row[6]))), row[7]) for row in rows]
    names = "customer, number, amount, cents, lines, note, placed, weight"
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(PLAIN_COPY)

    def copy() -> None:
        for at in range(0, changes, BATCH):
            with engine.begin() as connection:
                driver: Any = connection.connection.driver_connection
                with driver.cursor() as cursor, cursor.copy(f"COPY plain ({names}) FROM STDIN") as into:
                    for row in sorted(rows[at : at + BATCH]):
                        into.write_row(row)

    cost = _cost(copy)
    engine.dispose()
    return cost


def _cost(run: Callable[[], object]) -> Cost:
    began = time.perf_counter(), time.process_time(), _database_seconds()
    run()
    ended = time.perf_counter(), time.process_time(), _database_seconds()
    return Cost(*(after - before for before, after in zip(began, ended, strict=True)))


def _database_seconds() -> float:
    """What the processes of the PostgreSQL below this one have computed."""
    found = 0
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = status.read_text().rpartition(")")
            if "(postgres" in name:
                found += sum(map(int, rest.split()[11:13]))
    return found / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
