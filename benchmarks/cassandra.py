"""What a change into another Cassandra cluster costs: tables and log tables, by the sinks; and bare requests.

Usage: python -m benchmarks.cassandra [changes] [rounds]. In one run, on a node of its own on loopback, in batches of
5,000: new rows, the same again, the same rows changed, and rows of a log table. Bare requests have statements that are
bound already, one for each row: what the driver costs at all where every change is a request of its own. CPU is that of
all threads of this process; the node runs on the same cores, so rates say less.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from cassandra.concurrent import execute_concurrent
from cassandra.query import BoundStatement

from benchmarks.sql import ORDERS, PIECE, STREAM, WRITTEN, insert_of, key_of
from tailrace.local import LocalCassandra
from tailrace_common.build import describe
from tailrace_common.settings import Settings
from tailrace_schemas.change import Change
from tailrace_schemas.cql.values import split_key
from tailrace_schemas.streams import Assignment
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId
from tailrace_spark.sinks.protocol import Sink, write_here
from tailrace_spark.sinks.registry import open_sink
from tests.integration.agents import cql, create_keyspace
from tests.unit.spark.cassandra import Log

BATCH: Final = 5_000
STREAMS: Final = 64
CONCURRENCY: Final = 32
BARE: Final = """CREATE TABLE {}.bare (customer text, number int, amount decimal, cents bigint, lines int, note text,
placed timestamp, weight double, PRIMARY KEY (customer, number))"""
INSERT: Final = """INSERT INTO {}.bare (customer, number, amount, cents, lines, note, placed, weight)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?"""


class Cost(NamedTuple):
    """Of some changes: seconds that passed, and that all threads of this process computed."""

    passed: float
    own: float


def main(changes: int = 20_000, rounds: int = 3) -> None:
    """Print one line for each way, the least of some rounds, after one that warms the node."""
    print(f"{changes:,} changes of rows of 8 columns, {BATCH:,} in a batch, {describe()}\n")
    best: dict[str, Cost] = {}
    with TemporaryDirectory() as directory, LocalCassandra(Path(directory) / "cassandra") as node:
        list(_round(node, "warm", BATCH))
        for number in range(rounds):
            for name, cost in _round(node, f"round{number}", changes):
                best[name] = Cost(*map(min, cost, best.get(name, cost)))
    print(f"{'':52}{'changes/s':>12}{'us CPU here':>12}")
    for name, cost in best.items():
        print(f"{name:52}{changes / cost.passed:12,.0f}{cost.own / changes * 1e6:12.1f}")
    print(f"\nload: {' '.join(f'{load:.1f}' for load in os.getloadavg())}")


def _round(node: LocalCassandra, keyspace: str, changes: int) -> Iterator[tuple[str, Cost]]:
    log = Log(ORDERS)
    inserted = [insert_of(log, n, WRITTEN + n) for n in range(changes)]
    updated = [log.update(*key_of(n), WRITTEN + changes + n, cents=n, note=f"changed {n}") for n in range(changes)]
    with cql(node) as session:
        create_keyspace(session, keyspace)
    with closing(_opened(node, "cassandra", keyspace)) as sink:
        write_here(sink, [])
        yield "tables: new rows", _timed(sink, inserted)
        yield "tables: the same again", _timed(sink, inserted)
        yield "tables: rows that are there, changed", _timed(sink, updated)
    with closing(_opened(node, "log-tables", keyspace)) as sink:
        yield "log tables: new rows", _timed(sink, inserted)
        yield "log tables: the same again", _timed(sink, inserted)
    yield "bare requests of bound statements, one for a row", _bare(node, keyspace, inserted)


def _opened(node: LocalCassandra, kind: str, keyspace: str) -> Sink:
    section = {"type": kind, "contact_points": [node.address], "port": node.port, "keyspace": keyspace}
    settings = Settings.model_validate({"sink": {"bench": section}}).sink["bench"]
    return open_sink("bench", settings, "t")


def _timed(sink: Sink, changes: Sequence[Change]) -> Cost:
    batches = [_pieces(changes[start : start + BATCH], start) for start in range(0, len(changes), BATCH)]
    return _cost(lambda: [write_here(sink, batch) for batch in batches])


def _pieces(changes: Sequence[Change], first: int) -> list[Piece]:
    delivered = tuple(
        Delivered(RecordId("t.shop.orders", 0, offset, b"12345678"), change, _stream(offset))
        for offset, change in enumerate(changes, first)
    )
    return [Piece(delivered[start : start + PIECE]) for start in range(0, len(delivered), PIECE)]


def _stream(offset: int) -> Assignment:
    return Assignment(STREAM.generation, (offset % STREAMS).to_bytes(16, "big"))


def _bare(node: LocalCassandra, keyspace: str, changes: Sequence[Change]) -> Cost:
    with cql(node) as session:
        session.execute(BARE.format(keyspace))
        prepared = session.prepare(INSERT.format(keyspace))
        statements = [(_statement(prepared, change), ()) for change in changes]
        return _cost(lambda: execute_concurrent(session, statements, concurrency=CONCURRENCY))


def _statement(prepared: Any, change: Change) -> BoundStatement:
    key = split_key([column.type for column in change.table.partition_key], change.key or b"")
    bound = BoundStatement(prepared)
    cells = [cell.value for cell in change.cells]
    times = [cell.written.to_bytes(8, "big") for cell in change.cells[:1]]
    bound.values = [*key, *(change.clustering or ()), *cells, *times, bytes(4)]
    return bound


def _cost(run: Callable[[], object]) -> Cost:
    began = time.perf_counter(), time.process_time()
    run()
    return Cost(time.perf_counter() - began[0], time.process_time() - began[1])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
