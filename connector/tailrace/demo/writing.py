"""Makes the tables, writes the script, and follows until the SQLite file has all of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice, takewhile
from typing import Final

from tailrace.cluster import LiveCluster
from tailrace.demo.flow import Flow
from tailrace.demo.parts import DemoServices
from tailrace.demo.screen import Screen
from tailrace.demo.script import LAST_STATEMENTS, SCHEMA, statements
from tailrace.driver import Contact
from tailrace_schemas.errors import ServiceError

_PER_SECOND: Final = 60.0  # so that it can be watched
_STANDSTILL_SECONDS: Final = 180.0


def written(seed: int, changes: int, seconds: float | None) -> Iterator[str]:
    """What is written: a statement, then so many, or for so long; then a last row to each table."""
    script = statements(seed, time.time_ns() // 1000)
    yield next(script)
    if seconds is None:
        yield from islice(script, changes - 1)
    else:
        limit = time.monotonic() + seconds
        yield from takewhile(lambda _: time.monotonic() < limit, script)
    yield from LAST_STATEMENTS


def prepared(parts: DemoServices) -> LiveCluster:
    """A connection, and the tables."""
    node = parts.services.cassandra
    cluster = LiveCluster(Contact(hosts=(node.address,), port=node.port))
    for statement in SCHEMA:
        cluster.execute(statement)
    return cluster


def write(script: Iterator[str], source: LiveCluster, parts: DemoServices, flow: Flow, screen: Screen) -> int:
    """Write the first statement, the others once it has arrived, and follow until all have; how many there were.

    Spark takes its time for its first batch: the others are to be seen arriving one after the other.
    """
    count, began = 0, time.monotonic()
    news, last_news = (0, 0), began
    while not flow.complete:
        parts.require_running()
        now = time.monotonic()
        if not flow.landed:
            began = now
        for statement in islice(script, max(0, 1 + int((now - began) * _PER_SECOND) - count)):
            source.execute(statement)
            count += 1
        flow.turn()
        screen.refresh(count, flow.published, flow.landed, flow.median_seconds)
        if (count, flow.landed) != news:
            news, last_news = (count, flow.landed), now
        elif now > last_news + _STANDSTILL_SECONDS:
            raise ServiceError(
                f"nothing has arrived for {_STANDSTILL_SECONDS:.0f} s: the SQLite file has {flow.landed} of the "
                f"{flow.published} changes in Kafka. Look into {', '.join(str(service.log) for service in parts.all)}"
            )
    return count
