"""Changes a second into Delta tables: a history, new rows followed, the same again, rows merged; and bare deltalake.

Usage: python -m benchmarks.delta [changes] [rounds]. In one run, on a local disk; bare deltalake appends Arrow tables
that are made already, of the same visible rows, in batches of the same size: the limit of what it does at all.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from deltalake import DeltaTable, write_deltalake

from benchmarks.sql import ORDERS, PIECE, WRITTEN
from tailrace_common.build import describe
from tailrace_common.settings_sink_delta import DeltaSinkSettings
from tailrace_schemas.change import Change
from tailrace_schemas.streams import Assignment
from tailrace_spark.sinks.change_log import ChangeLogSink
from tailrace_spark.sinks.delta_current import DeltaCurrent
from tailrace_spark.sinks.delta_history import DeltaHistory
from tailrace_spark.sinks.delta_store import DeltaStore
from tailrace_spark.sinks.protocol import Delivered, Piece, Place, Sink
from tests.unit.spark.cassandra import Log

BATCH = 50_000
STREAM = Assignment(1_760_000_000_000, bytes(range(16)))


def main(changes: int = 200_000, rounds: int = 2) -> None:
    """Print one line for each way, the best of some rounds."""
    print(f"{changes:,} changes of rows of 8 columns, {BATCH:,} in a batch, {describe()}\n")
    best: dict[str, float] = {}
    for _ in range(rounds):
        with TemporaryDirectory() as directory:
            for name, seconds in _round(Path(directory), changes):
                best[name] = min(seconds, best.get(name, seconds))
    print(f"{'':44}{'changes/s':>12}")
    for name, seconds in best.items():
        print(f"{name:44}{changes / seconds:12,.0f}")


def _round(root: Path, changes: int) -> Iterator[tuple[str, float]]:
    log = Log(ORDERS)
    inserted = [log.insert(*_key(n), WRITTEN + n, **_values(n)) for n in range(changes)]
    history = DeltaStore(DeltaSinkSettings(path=str(root / "history")))
    with closing(ChangeLogSink(DeltaHistory(history))) as sink:
        yield "history: each change a row", _timed(sink, inserted)
    yield "bare deltalake, the history's own rows", _bare(root / "bare", str(root / "history/shop.orders"))
    current = DeltaStore(DeltaSinkSettings(path=str(root / "current"), mode="current"))
    with closing(DeltaCurrent(current)) as sink:
        yield "current: new rows", _timed(sink, inserted)
        yield "current: the same again, nothing changes", _timed(sink, inserted)
        del inserted
        updated = [log.update(*_key(n), WRITTEN + changes + n, cents=n, note=f"changed {n}") for n in range(changes)]
        yield "current: rows that are there, merged", _timed(sink, updated)
    yield "bare deltalake, the visible rows appended", _bare(root / "bare rows", str(root / "current/shop.orders"))


def _key(number: int) -> tuple[tuple[str], tuple[int]]:
    """Keys in no order, four rows to a partition."""
    mixed = number * 7919 % 1_000_003
    return (f"customer-{mixed // 4:08}",), (mixed % 4,)


def _values(number: int) -> dict[str, object]:
    return {
        "amount": f"{number}.50", "cents": number * 100, "lines": number % 9, "note": f"words about order {number}",
        "placed": 1_760_000_000_000 + number, "weight": number / 8,
    }  # fmt: skip


def _timed(sink: Sink, changes: Sequence[Change]) -> float:
    delivered = [Delivered(Place("t", 0, at, b"12345678"), change, STREAM) for at, change in enumerate(changes)]
    batches = [_pieces(delivered[at : at + BATCH]) for at in range(0, len(delivered), BATCH)]
    return _seconds(lambda: [sink.write(batch) for batch in batches])


def _pieces(delivered: Sequence[Delivered]) -> list[Piece]:
    return [Piece(tuple(delivered[at : at + PIECE])) for at in range(0, len(delivered), PIECE)]


def _bare(path: Path, like: str) -> float:
    rows: Any = DeltaTable(like).to_pyarrow_table()
    batches = [rows.slice(at, BATCH) for at in range(0, len(rows), BATCH)]
    parts = DeltaTable(like).metadata().partition_columns
    return _seconds(lambda: [write_deltalake(path, batch, mode="append", partition_by=parts) for batch in batches])


def _seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
