"""What exactly once costs: transactions by the agent's policy beside a fixed one, and an idempotent producer.

Changes of 1, 10 and 200 tables, of three partitions each, into one real Kafka; all ways in one run, in turn.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import uuid4

from tailrace.agent.commits import Transaction
from tailrace.agent.limits import Limits
from tailrace.local import LocalKafka
from tailrace.ops.health import HealthBoard
from tailrace.publish.kafka import KafkaPublisher, KafkaTopics
from tailrace.publish.kafka.publisher import Delivery
from tailrace.publish.record import Record
from tailrace.state import Resume
from tailrace_common.kafka import Pace, Sizes
from tailrace_common.settings import TopicSettings
from tailrace_schemas.avro import Encoder
from tailrace_schemas.position import Position
from tailrace_schemas.topics import Internal
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

TABLES: tuple[int, ...] = (1, 10, 200)
PARTITIONS = 3
BYTES = 250
CHANGES = int(os.environ.get("TAILRACE_BENCH_CHANGES", "100000"))
ROUNDS = int(os.environ.get("TAILRACE_BENCH_ROUNDS", "3"))
FIXED = Limits(partitions=1 << 30, stretch_changes=1, stretch_seconds=1)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to publish: when to commit, and whether that is a transaction."""

    name: str
    limits: Limits
    delivery: Delivery = "exactly-once"
    most: int | None = None
    """The changes of a transaction, however many partitions they touch."""


WAYS: Sequence[Way] = (
    Way("no transactions, the agent's policy", Limits(), "at-least-once"),
    Way("transactions of 64 changes or 20 ms", FIXED, most=64),
    Way("transactions, the agent's policy", Limits()),
)


@dataclass(slots=True)
class Run:
    """What one pass took: seconds, CPU seconds of our process, and how long each commit took."""

    changes: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    commits: list[float] = field(default_factory=list)


def main() -> None:
    """Print a line per number of tables and way; the best of some rounds, in which all ways take turns."""
    print(f"{CHANGES:,} changes of {BYTES} bytes, one broker, best of {ROUNDS}\n")
    heads = f"{'tables':>6}  {'':<38}{'changes/s':>11}{'commits/s':>11}{'CPU s per million':>19}"
    print(f"{heads}{'commit ms p50':>15}{'p95':>8}")
    with tempfile.TemporaryDirectory() as directory, LocalKafka(Path(directory) / "kafka") as kafka:
        for tables in TABLES:
            stage, best = Stage(kafka.bootstrap, tables), dict[str, Run]()
            for _ in range(ROUNDS):
                for way in WAYS:
                    run = stage.run(way)
                    if way.name not in best or run.seconds < best[way.name].seconds:
                        best[way.name] = run
            for name, run in best.items():
                print(_line(tables, name, run), flush=True)


def _line(tables: int, name: str, run: Run) -> str:
    million = run.changes / 1e6
    latency = sorted(run.commits)
    p95 = latency[int(len(latency) * 0.95)]
    return (
        f"{tables:>6}  {name:<38}{run.changes / run.seconds:>11,.0f}{len(latency) / run.seconds:>11,.1f}"
        f"{run.cpu / million:>19.2f}{statistics.median(latency) * 1000:>15.1f}{p95 * 1000:>8.1f}"
    )


class Stage:
    """So many tables' topics, for all ways."""

    def __init__(self, bootstrap: str, tables: int) -> None:
        self._config: dict[str, bool | int | float | str] = {"bootstrap.servers": bootstrap}
        self._prefix = f"b{uuid4().hex[:8]}"
        self._topics = KafkaTopics(self._config, TopicSettings(prefix=self._prefix, partitions=PARTITIONS))
        self._topics.ensure_internal((Internal.OFFSETS, Internal.SCHEMA_HISTORY))
        self._names = [f"{self._prefix}.ks.t{number}" for number in range(tables)]
        for name in self._names:
            self._topics.ensure_table(name)

    def run(self, way: Way) -> Run:
        """All changes, by an agent of its own."""
        publisher = KafkaPublisher(
            self._config,
            prefix=self._prefix,
            cluster="bench",
            host=str(uuid4()),
            clock=time.monotonic,
            sizes=Sizes(limits=self._topics.limits),
            delivery=way.delivery,
        )
        with closing(publisher):
            publisher.start()
            publisher.commit(_at(0))  # the first one costs more
            return _publish(publisher, way, _records(self._names))


def _publish(publisher: KafkaPublisher, way: Way, records: Iterator[Record]) -> Run:
    health, pace = HealthBoard(time.monotonic), Pace(60, 600, time.monotonic)
    transaction = Transaction(publisher, way.limits, health, time.monotonic, lambda: time.time_ns() // 1_000_000, pace)
    run, open_changes = Run(), 0

    def commit() -> None:
        before = time.monotonic()
        transaction.commit(_at(run.changes), ())
        run.commits.append(time.monotonic() - before)

    began, cpu = time.monotonic(), time.process_time()
    for record in records:
        transaction.send((record,))
        run.changes += 1
        open_changes += 1
        if transaction.full or open_changes == way.most:
            commit()
            open_changes = 0
    commit()
    run.seconds, run.cpu = time.monotonic() - began, time.process_time() - cpu
    return run


def _records(names: Sequence[str]) -> Iterator[Record]:
    """A change of each table in turn; what it says does not matter to Kafka, how long it is does."""
    of = table({"id": "int"}, regular={"v": "blob"}, keyspace="ks", name="t")
    change = Log(of).insert((1,), (), time.time_ns() // 1000, v=b"")
    encoder = Encoder(of, "bench")
    value = encoder.value(change)
    [cell] = change.cells
    value = encoder.value(replace(change, cells=(replace(cell, value=os.urandom(max(0, BYTES - len(value)))),)))
    for number in range(CHANGES):
        yield Record(names[number % len(names)], (number // len(names)) % PARTITIONS, value[:16], value)


def _at(offset: int) -> Resume:
    return Resume(Position(1, 1, offset))


if __name__ == "__main__":
    main()
