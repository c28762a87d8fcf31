"""The demo from its first to its last moment: start, write, follow, wait, compare."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Final

from tailrace.cluster import LiveCluster
from tailrace.demo.comparison import Comparison, compare
from tailrace.demo.display import Display, Outcome
from tailrace.demo.feed import Feed
from tailrace.demo.flow import Flow, sink_table
from tailrace.demo.parts import PARTITIONS, PREFIX, Parts
from tailrace.demo.script import LAST_CUSTOMER
from tailrace.demo.tables import KEYSPACE, STATEMENTS, TABLES
from tailrace.demo.writer import Amount, Writer
from tailrace.driver import Contact
from tailrace_schemas.errors import ServiceError

_TURN_SECONDS: Final = 0.05
_CATCH_UP_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do: how much to write, from which seed; `keep` leaves everything running until interrupted.

    `prove` compares a second time, after one value of the SQLite file was changed: that has to be told.
    """

    directory: Path
    amount: Amount = field(default_factory=Amount)
    seed: int = 1
    keep: bool = False
    prove: bool = False


def run(plan: Plan, display: Display, clock: Callable[[], float] = time.monotonic) -> Comparison:
    """Run the demo. Whatever is raised, KeyboardInterrupt included, everything that was started is ended before.

    Raises ServiceError, naming the log and quoting its end, when a part fails or the copy does not catch up.
    """
    began = clock()
    with ExitStack() as stack:
        stack.callback(display.close)
        parts = Parts(plan.directory, display, clock)
        stack.callback(parts.stop)
        parts.fetch()
        cluster: list[LiveCluster] = []
        parts.start(lambda: cluster.append(_prepare(parts)))
        source = stack.enter_context(closing(cluster[0]))
        flow = _follow(plan, parts, source, display, stack, clock)
        comparison = compare_all(source, parts)
        display.finished(Outcome(comparison=comparison, counts=flow.counts, seconds=clock() - began))
        if plan.prove:
            parts.sqlite.spoil(f"{sink_table('orders')}__rows", "status", {"customer": LAST_CUSTOMER})
            comparison = compare_all(source, parts)
            display.finished(Outcome(comparison=comparison, counts=flow.counts, seconds=clock() - began))
        if plan.keep:
            display.addresses(_addresses(parts))
            _go_on(parts, flow)
    return comparison


def _prepare(parts: Parts) -> LiveCluster:
    """A connection, and the tables."""
    node = parts.services.cassandra
    cluster = LiveCluster(Contact(hosts=(node.address,), port=node.port))
    for statement in STATEMENTS:
        cluster.execute(statement)
    return cluster


def _follow(
    plan: Plan, parts: Parts, source: LiveCluster, display: Display, stack: ExitStack, clock: Callable[[], float]
) -> Flow:
    """Write and follow until everything that was written is in the SQLite file."""
    topics = [f"{PREFIX}.{KEYSPACE}.{name}" for name in TABLES]
    config = {"bootstrap.servers": parts.services.kafka.bootstrap}
    feed = stack.enter_context(closing(Feed(config, PREFIX, topics, PARTITIONS)))
    flow = Flow(feed, parts.checkpoint, parts.sqlite, display, time.time)
    writer = Writer(source.execute, plan.amount, clock)

    def wrote() -> None:
        flow.written += 1

    with ThreadPoolExecutor(1, thread_name_prefix="writer") as pool:
        writing = pool.submit(writer.run, plan.seed, time.time_ns() // 1000, wrote)
        try:
            while not writing.done():
                parts.check()
                flow.turn(_TURN_SECONDS)
                if flow.landed:
                    writer.go()
            writing.result()
            _catch_up(parts, flow, clock)
        finally:
            writer.stop()
    return flow


def _catch_up(parts: Parts, flow: Flow, clock: Callable[[], float]) -> None:
    deadline = clock() + _CATCH_UP_SECONDS
    while not flow.complete:
        parts.check()
        flow.turn(_TURN_SECONDS)
        if clock() > deadline:
            counts = flow.counts
            logs = ", ".join(map(str, parts.logs.values()))
            raise ServiceError(
                f"{_CATCH_UP_SECONDS:.0f} s after the last write the SQLite file has {counts.landed} of the"
                f" {counts.published} changes in Kafka, and not the last ones written. Look into {logs}"
            )


def compare_all(source: LiveCluster, parts: Parts) -> Comparison:
    """Every table of the demo: SELECT against the SQLite file."""
    definitions = {str(table): table for table in source.definitions().tables}
    return compare(
        (
            definitions[f"{KEYSPACE}.{name}"],
            source.execute(f"SELECT * FROM {KEYSPACE}.{name}"),  # noqa: S608 - names of ours
            parts.sqlite.rows(sink_table(name)),
        )
        for name in TABLES
    )


def _addresses(parts: Parts) -> dict[str, str]:
    cassandra, kafka = parts.services.cassandra, parts.services.kafka
    return {
        "Cassandra": f"{cassandra.address}:{cassandra.port}, keyspace {KEYSPACE}: change it and see it arrive",
        "Kafka": f"{kafka.bootstrap}, topics {PREFIX}.{KEYSPACE}.<table>",
        "SQLite": f"sqlite3 {parts.sqlite.path} 'SELECT * FROM {sink_table(TABLES[0])}'",  # noqa: S608
        "settings": str(parts.settings),
        **{f"log of {name}": str(log) for name, log in parts.logs.items()},
    }


def _go_on(parts: Parts, flow: Flow) -> None:
    """Until interrupted, or until a part ends."""
    pause = Event()
    while not pause.wait(1.0):
        parts.check()
        flow.turn(0)
