"""Tables of Cassandra read by token ranges: ours, a plain reader of cassandra-driver, COPY of cqlsh, and ours in Spark.

Usage: python -m benchmarks.snapshot [rows] [cqlsh]. In one run, on a node of its own on loopback: rows of 8 columns,
100 in a partition, flushed. CPU is that of the reading process, all of its threads, and of COPY's processes; the node
runs on the same cores, so rates say less. Then rows a second asked for and done. `cqlsh` is the program
(`pip install cqlsh` into an environment of its own). Spark itself reads Cassandra with a connector's jar alone.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from cassandra import ConsistencyLevel
from cassandra.cluster import Session
from cassandra.concurrent import execute_concurrent
from cassandra.query import BatchStatement, BatchType

from tailrace.local import CassandraSettings, LocalCassandra
from tailrace_common.build import describe
from tailrace_spark.snapshot.changes import TaskRecords, messages
from tailrace_spark.snapshot.session import range_reader, survey
from tailrace_spark.snapshot.settings import SnapshotSettings, settings_of
from tests.integration.agents import cql, create_keyspace

ROWS: Final = 1_000_000
ROUNDS: Final = 3
PARTITION: Final = 100
ORDERS: Final = """CREATE TABLE bench.orders (customer text, number int, amount decimal, cents bigint, lines int,
note text, placed timestamp, weight double, PRIMARY KEY (customer, number))"""
NODE: Final = CassandraSettings(jmx_port=0)


class Cost(NamedTuple):
    """Of reading all rows once."""

    passed: float
    own: float
    rows: int


def main(rows: int = ROWS, cqlsh: str | None = None) -> None:
    """Print a line for each way, the least of some rounds."""
    with TemporaryDirectory() as directory, LocalCassandra(Path(directory) / "cassandra", NODE) as node:
        with cql(node, seconds=120) as session:
            create_keyspace(session, "bench")
            fill(session, rows)
            node.nodetool("flush", "bench")
            print(f"{rows:,} rows of 8 columns, {PARTITION} in a partition, {describe()}\n")
            print(f"{'':<52}{'rows/s':>10}{'CPU s per million':>20}")
            options = {"contact_points": node.address, "port": str(node.port), "consistency": "LOCAL_ONE"}
            ways = _ways(session, options)
            if cqlsh is not None:
                file = Path(directory) / "rows.csv"
                ways["COPY TO of cqlsh, values only, CSV"] = lambda: _copy(cqlsh, node, file)
            best: dict[str, Cost] = {}
            for _ in range(ROUNDS):
                for name, way in ways.items():
                    cost = _measured(way)
                    other = best.get(name, cost)
                    best[name] = Cost(min(cost.passed, other.passed), min(cost.own, other.own), cost.rows)
            for name, cost in best.items():
                _line(name, cost, rows)
            _limits(options)
        _line(f"tailrace-snapshot in Spark, local[2], {ROUNDS} rounds", _spark(options), rows, own=False)


def fill(session: Session, rows: int, keyspace: str = "bench") -> None:
    """Make the table and write its rows."""
    session.execute(ORDERS.replace("bench.", f"{keyspace}."))
    insert = session.prepare(
        (
            "INSERT INTO bench.orders (customer, number, amount, cents, lines, note, placed, weight) "
            "VALUES (?, ?, 12.50, ?, ?, ?, '2026-01-01', ?)"
        ).replace("bench.", f"{keyspace}.")
    )

    def batches() -> Iterator[tuple[BatchStatement, None]]:
        for first in range(0, rows, PARTITION):
            batch = BatchStatement(BatchType.UNLOGGED, consistency_level=ConsistencyLevel.ONE)
            for row in range(first, min(rows, first + PARTITION)):
                batch.add(insert, (f"customer {first // PARTITION}", row, row, row % 7, f"note {row}", row / 3))
            yield batch, None

    execute_concurrent(session, batches(), concurrency=32)


def _ways(session: Session, options: dict[str, str]) -> dict[str, Callable[[], int]]:
    settings = settings_of({**options, "table": "bench.orders"}, {})
    with_times = _statement(settings)
    values_only = _statement(settings.model_copy(update={"details": False}))
    return {
        "plain driver, values only, tuples": lambda: _plain(session, values_only),
        "plain driver, with WRITETIME and TTL, tuples": lambda: _plain(session, with_times),
        "ours, values only, Arrow": lambda: _ours(settings.model_copy(update={"details": False})),
        "ours, with WRITETIME and TTL, Arrow": lambda: _ours(settings),
        "ours, as `read` changes": lambda: _changes(settings.model_copy(update={"rows": "changes"})),
    }


def _statement(settings: SnapshotSettings) -> str:
    return survey(settings).reading.statement


def _ranges(settings: SnapshotSettings) -> list[Any]:
    return survey(settings).splits()


def _plain(session: Session, statement: str) -> int:
    """As people write it: each range of the ring, 5,000 rows a page, the driver's own rows."""
    settings = settings_of({"table": "bench.orders", "contact_points": _address(session), "port": _port(session)}, {})
    prepared = session.prepare(statement)
    rows = 0
    for split in _ranges(settings):
        bound = prepared.bind((split.range.start, split.range.end))
        bound.fetch_size = 5000
        for _ in session.execute(bound):
            rows += 1
    return rows


def _address(session: Session) -> str:
    return str(next(iter(session.hosts)).address)


def _port(session: Session) -> str:
    return str(session.cluster.port)


def _ours(settings: SnapshotSettings) -> int:
    survey_now = survey(settings)
    shape = survey_now.reading.shape
    with range_reader(survey_now.reading, 1) as reader:
        return sum(shape.batch(page.parsed).num_rows for page in reader.pages(survey_now.splits()))


def _changes(settings: SnapshotSettings) -> int:
    from tailrace_schemas.avro import Encoder

    survey_now = survey(settings)
    records, rows = (
        TaskRecords(survey_now.table, survey_now.reading.shape.selected, Encoder(survey_now.table, "bench"), "dc"),
        0,
    )
    with range_reader(survey_now.reading, 1) as reader:
        for page in reader.pages(survey_now.splits()):
            rows += messages(records.of(page)).num_rows
    return rows


def _copy(cqlsh: str, node: LocalCassandra, file: Path) -> int:
    """By as many processes as it chooses: all cores but one."""
    statement = f"COPY bench.orders TO '{file}'"
    command = [cqlsh, node.address, str(node.port), "-e", statement]
    subprocess.run(command, check=True, capture_output=True)
    with file.open("rb") as lines:
        return sum(1 for _ in lines)


def _measured(way: Callable[[], int]) -> Cost:
    began, computed = time.perf_counter(), _computed()
    rows = way()
    return Cost(time.perf_counter() - began, _computed() - computed, rows)


def _computed() -> float:
    """CPU seconds of this process and of those that it has ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _line(name: str, cost: Cost, rows: int, *, own: bool = True) -> None:
    if cost.rows != rows:
        raise SystemExit(f"{name}: {cost.rows} rows instead of {rows}")
    computed = f"{cost.own / rows * 1e6:>20.2f}" if own else f"{'':>20}"
    print(f"{name:<52}{rows / cost.passed:>10,.0f}{computed}", flush=True)


def _limits(options: dict[str, str]) -> None:
    print(f"\n{'rows/s asked for':<30}{'done':>10}")
    for asked in (1_000, 5_000, 20_000):
        settings = settings_of(
            {**options, "table": "bench.orders", "rows_per_second": str(asked), "concurrent_ranges": "1"}, {}
        )
        survey_now = survey(settings)
        rows, began = 0, time.perf_counter()
        with range_reader(survey_now.reading, 1) as reader:
            for page in reader.pages(survey_now.splits()):
                rows += page.rows
                if time.perf_counter() - began > 10:
                    break
        print(f"{asked:<30,}{rows / (time.perf_counter() - began):>10,.0f}", flush=True)
    print()


def _spark(options: dict[str, str]) -> Cost:
    from tailrace_spark.snapshot import register
    from tests.services.spark import start_spark

    with TemporaryDirectory() as directory:
        spark = start_spark(Path(directory))
        try:
            register(spark)
            frame = spark.read.format("tailrace-snapshot").options(**options).load("bench.orders")
            rows, best = frame.count(), float("inf")
            for _ in range(ROUNDS):
                began = time.perf_counter()
                frame.write.format("noop").mode("overwrite").save()
                best = min(best, time.perf_counter() - began)
        finally:
            spark.stop()
    return Cost(best, 0.0, rows)


if __name__ == "__main__":
    with closing(sys.stdout):
        main(int(sys.argv[1]) if sys.argv[1:] else ROWS, *sys.argv[2:3])
