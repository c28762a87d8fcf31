"""From the client that inserts a row to a consumer; from a program's start to its first record."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import WhiteListRoundRobinPolicy
from confluent_kafka import Consumer

from benchmarks.agent.figures import percentile
from benchmarks.agent.programs import Program, Task
from benchmarks.agent.topics import Topic, reader
from tailrace.local.cassandra import LocalCassandra
from tests.support.waiting import until

TABLE: Final = "latency.rows"
_KEYSPACE: Final = "CREATE KEYSPACE latency WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
_CREATE: Final = (
    f"CREATE TABLE {TABLE} (id bigint, part int, count int, sum bigint, mark text, mail text, amount double, "
    "at timestamp, note text, PRIMARY KEY (id, part)) WITH cdc = true"
)
_INSERT: Final = (
    f"INSERT INTO {TABLE} (id, part, count, sum, mark, mail, amount, at, note) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - a constant
)
# Found in Avro and in JSON alike.
_MARK: Final = re.compile(rb"mark-(\d{8})-")
_START_SECONDS: Final = 600.0
_TAIL_SECONDS: Final = 20.0
_REST_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Seconds from the insert to the consumer, and from the program's start to its first record and ready producer."""

    rows: int
    missing: int
    duplicates: int
    p50: float
    p95: float
    p99: float
    first: float
    ready: float | None
    cpu: float


class Writer:
    """Inserts rows at a rate; `sent` is when each was handed to the driver, by its number."""

    def __init__(self, session: Any) -> None:
        self.sent: dict[int, float] = {}
        self._session = session
        self._insert = session.prepare(_INSERT)

    def write(self, number: int) -> None:
        """Insert one row."""
        values = (
            number, 1, number, number * 7, f"mark-{number:08d}-", f"mail{number}@example.com", number * 0.5,
            int(time.time() * 1000), "note " * 8,
        )  # fmt: skip
        self.sent[number] = time.monotonic()
        self._session.execute_async(self._insert, values)

    def write_at_rate(self, numbers: range, rate: float) -> None:
        """Insert these rows, so many a second."""
        began = time.monotonic()
        for place, number in enumerate(numbers):
            time.sleep(max(0.0, began + place / rate - time.monotonic()))  # until it is due
            self.write(number)


def latency(program: Program, task: Task, seconds: float, rate: float) -> Latency:
    """Write a row, start the program, wait for the row; then rows at a rate, each awaited."""
    topic = Topic(task.bootstrap, task.topic(TABLE))
    with session_of(task.node) as session:
        session.execute(_KEYSPACE)
        session.execute(_CREATE)
        writer = Writer(session)
        writer.write(0)
        time.sleep(1)  # the log is synced, as it is where an agent is started again
        if not program.makes_topics:
            topic.make()
        with program.start(task) as run, closing(reader(task.bootstrap)) as consumer:
            got: dict[int, float] = {}
            deadline = time.monotonic() + _START_SECONDS

            def there() -> bool:
                run.require_running()
                return topic.there

            until(there, f"{topic.name} is there", _START_SECONDS, every=0.01)
            consumer.assign(topic.beginning())
            while not got and time.monotonic() < deadline:
                run.require_running()
                _receive(consumer, got)
            if not got:
                raise RuntimeError(f"{program.name}: no record in {_START_SECONDS:.0f} s")
            first = min(got.values()) - run.began
            time.sleep(_REST_SECONDS)  # what a start leaves to do is no part of the CPU seconds that follow
            numbers = range(1, int(seconds * rate) + 1)
            before = run.cpu
            thread = threading.Thread(target=writer.write_at_rate, args=(numbers, rate))
            thread.start()
            deadline = time.monotonic() + seconds + _TAIL_SECONDS
            duplicates = 0
            while len(got) <= len(numbers) and time.monotonic() < deadline:
                duplicates += _receive(consumer, got)
            thread.join()
            cpu, ready = run.cpu - before, program.ready(run)
    times = [got[number] - writer.sent[number] for number in numbers if number in got]
    return Latency(
        rows=len(numbers),
        missing=len(numbers) - len(times),
        duplicates=duplicates,
        p50=percentile(times, 0.5),
        p95=percentile(times, 0.95),
        p99=percentile(times, 0.99),
        first=first,
        ready=ready,
        cpu=cpu,
    )


def _receive(consumer: Consumer, got: dict[int, float]) -> int:
    """Note when rows come for the first time; how many had come before."""
    again = 0
    for message in consumer.consume(500, 0.02):
        found = _MARK.search(message.value() or b"") if message.error() is None else None
        if found is not None and got.setdefault(int(found[1]), now := time.monotonic()) is not now:
            again += 1
    return again


@contextmanager
def session_of(node: LocalCassandra) -> Iterator[Any]:
    """A session of the driver."""
    profile = ExecutionProfile(load_balancing_policy=WhiteListRoundRobinPolicy([node.address]), request_timeout=60)
    cluster = Cluster([node.address], port=node.port, execution_profiles={EXEC_PROFILE_DEFAULT: profile})
    try:
        yield cluster.connect()
    finally:
        cluster.shutdown()
