"""Changes a second into Delta tables: a history, new rows followed, the same again, rows merged; and bare deltalake.

Usage: python -m benchmarks.delta [changes] [rounds]. In one run, on a local disk; bare deltalake appends, or merges by
key, Arrow tables that are made already, of the very rows that the sink put there, in batches of the same size: the
limit of what it does at all. Tasks run in this process too, one after another, each by a copy that was pickled. The CPU
time of all threads for a change, those of delta-rs among them, says what cores of their own could do.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from deltalake import DeltaTable, write_deltalake

from benchmarks.sql import ORDERS, PIECE, WRITTEN
from tailrace_common.build import describe
from tailrace_schemas.change import Change
from tailrace_schemas.streams import Assignment
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId
from tailrace_spark.sinks.changelog.sink import ChangeLogSink
from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tailrace_spark.sinks.delta.store import DeltaStore
from tailrace_spark.sinks.lake.current import LakeCurrent
from tailrace_spark.sinks.lake.history import LakeHistory, history_sink
from tailrace_spark.sinks.protocol import Sink, write_here
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.in_tasks import LogInTasks

BATCH = 50_000
PARTITIONS = 4
_ROWS: Final = "shop.orders"
_STATES: Final = "shop.orders-state"
STREAM = Assignment(1_760_000_000_000, bytes(range(16)))


class Cost(NamedTuple):
    """Of some changes: seconds that passed, and that all threads of this process computed."""

    passed: float
    computed: float


def main(changes: int = 200_000, rounds: int = 2) -> None:
    """Print one line for each way, the best of some rounds."""
    print(f"{changes:,} changes of rows of 8 columns, {BATCH:,} in a batch, {describe()}\n")
    best: dict[str, Cost] = {}
    with TemporaryDirectory() as directory:
        list(_round(Path(directory), 100))  # what is loaded when it is first used
    for _ in range(rounds):
        with TemporaryDirectory() as directory:
            for name, cost in _round(Path(directory), changes):
                best[name] = Cost(*map(min, cost, best.get(name, cost)))
    print(f"{'':52}{'changes/s':>12}{'us each':>12}{'us CPU':>12}")
    for name, cost in best.items():
        passed, computed = (seconds / changes * 1e6 for seconds in cost)
        print(f"{name:52}{changes / cost.passed:12,.0f}{passed:12.1f}{computed:12.1f}")
    print(f"\nload: {' '.join(f'{load:.1f}' for load in os.getloadavg())}")


def _round(root: Path, changes: int) -> Iterator[tuple[str, Cost]]:
    log = Log(ORDERS)
    inserted = [_insert(log, n) for n in range(changes)]
    history = DeltaStore(DeltaSinkSettings(path=str(root / "history")))
    with closing(ChangeLogSink(LakeHistory(history))) as sink:
        yield "history: each change a row", _timed(sink, inserted)
    tasks = DeltaStore(DeltaSinkSettings(path=str(root / "by tasks")))
    with closing(history_sink(LakeHistory(tasks))) as in_tasks:
        yield f"history by {PARTITIONS} tasks, one after another", _timed(LogInTasks(in_tasks), inserted, PARTITIONS)
    yield "bare deltalake appends the history's rows", _appended(root / "bare", str(root / "history/shop.orders"))
    current = DeltaStore(DeltaSinkSettings(path=str(root / "current"), mode="current"))
    bare = {name: (root / "bare rows" / name, str(root / "current" / name)) for name in (_ROWS, _STATES)}
    with closing(LakeCurrent(current)) as sink:
        yield "current: new rows", _timed(sink, inserted)
        yield "bare deltalake appends the rows and their states", _sum(_appended(*one) for one in bare.values())
        yield "current: the same again, nothing changes", _timed(sink, inserted)
        del inserted
        updated = [log.update(*_key(n), WRITTEN + changes + n, cents=n, note=f"changed {n}") for n in range(changes)]
        yield "current: rows that are there, merged", _timed(sink, updated)
    keys = {_ROWS: ("__bucket", "__key", "__clustering"), _STATES: ("bucket", "key", "clustering")}
    costs = (_merged(*one, keys[name]) for name, one in bare.items())
    yield "bare deltalake merges the rows and their states", _sum(costs)


def _insert(log: Log, number: int) -> Change:
    key, clustering = _key(number)
    return log.insert(key, clustering, WRITTEN + number, **_values(number))


def _key(number: int) -> tuple[tuple[str], tuple[int]]:
    """Keys in no order, four rows to a partition."""
    mixed = number * 7919 % 1_000_003
    return (f"customer-{mixed // 4:08}",), (mixed % 4,)


def _values(number: int) -> dict[str, object]:
    return {
        "amount": f"{number}.50", "cents": number * 100, "lines": number % 9, "note": f"words about order {number}",
        "placed": 1_760_000_000_000 + number, "weight": number / 8,
    }  # fmt: skip


def _timed(sink: Sink, changes: Sequence[Change], partitions: int = 1) -> Cost:
    """The changes are of so many partitions, each piece of one."""
    delivered = [
        Delivered(RecordId("t", at // PIECE % partitions, at, b"12345678"), change, STREAM)
        for at, change in enumerate(changes)
    ]
    batches = [_pieces(delivered[at : at + BATCH]) for at in range(0, len(delivered), BATCH)]
    return _cost(lambda: [write_here(sink, batch) for batch in batches])


def _pieces(delivered: Sequence[Delivered]) -> list[Piece]:
    return [Piece(tuple(delivered[at : at + PIECE])) for at in range(0, len(delivered), PIECE)]


def _appended(path: Path, like: str) -> Cost:
    parts = DeltaTable(like).metadata().partition_columns
    batches = _batches(like)
    return _cost(lambda: [write_deltalake(path, batch, mode="append", partition_by=parts) for batch in batches])


def _merged(path: Path, like: str, named_by: Sequence[str]) -> Cost:
    same = " AND ".join(f't."{name}" = s."{name}"' for name in named_by)

    def merge(batch: Any) -> None:
        merging = DeltaTable(path).merge(batch, same, "s", "t", streamed_exec=False)
        merging.when_matched_update_all().when_not_matched_insert_all().execute()

    batches = _batches(like)

    def merge_all() -> None:
        for batch in batches:
            merge(batch)

    return _cost(merge_all)


def _batches(like: str) -> list[Any]:
    rows: Any = DeltaTable(like).to_pyarrow_table()
    return [rows.slice(at, BATCH) for at in range(0, len(rows), BATCH)]


def _sum(costs: Iterable[Cost]) -> Cost:
    return Cost(*map(sum, zip(*costs, strict=True)))


def _cost(run: Callable[[], object]) -> Cost:
    began = time.perf_counter(), time.process_time()
    run()
    return Cost(time.perf_counter() - began[0], time.process_time() - began[1])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
