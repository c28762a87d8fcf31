"""A load from a seed: rows, statics, collections, deletions and batches, over tables with cdc and without."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final

from cassandra import DriverException
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, ResponseFuture
from cassandra.connection import ConnectionException
from cassandra.policies import ConstantReconnectionPolicy, FallthroughRetryPolicy, WhiteListRoundRobinPolicy

from tailrace.local import LocalCassandra
from tests.integration.agents import BUSY_SECONDS
from tests.support.background import Background
from tests.support.waiting import until

TABLES: Final = (
    "CREATE TABLE #.rows (p int, c int, s text STATIC, v text, n varint, tags set<text>, steps list<int>,"
    " sizes map<text, int>, PRIMARY KEY (p, c)) WITH cdc = true",
    "CREATE TABLE #.ranges (p int, c int, d text, v text, PRIMARY KEY (p, c, d))"
    " WITH CLUSTERING ORDER BY (c DESC, d ASC) AND cdc = true",
    "CREATE TABLE #.bulk (p int PRIMARY KEY, v blob) WITH cdc = true",
    "CREATE TABLE #.counted (p int PRIMARY KEY, n counter) WITH cdc = true",
    "CREATE TABLE #.plain (p int PRIMARY KEY, v text)",
)
"""# is the keyspace. `plain` has no cdc."""

_KINDS: Final = {
    "INSERT INTO #.rows (p, c, v, n) VALUES (:p, :c, :t, :n)": 30,
    "INSERT INTO #.rows (p, c, s, v, tags) VALUES (:p, :c, :t, :t, {'a', 'b'}) USING TTL 86400": 5,
    "UPDATE #.rows SET v = :t, tags = tags + {'c'}, sizes = sizes + {'x': 1} WHERE p = :p AND c = :c": 8,
    "UPDATE #.rows SET steps = steps + [1, 2], tags = tags - {'a'} WHERE p = :p AND c = :c": 4,
    "UPDATE #.rows SET steps = [3], sizes = {'y': 1} WHERE p = :p AND c = :c": 3,
    "UPDATE #.rows SET s = :t WHERE p = :p": 5,
    "DELETE v FROM #.rows WHERE p = :p AND c = :c": 2,
    "DELETE FROM #.rows WHERE p = :p AND c = :c": 4,
    "DELETE FROM #.rows WHERE p = :p": 1,
    "INSERT INTO #.ranges (p, c, d, v) VALUES (:p, :c, :t, 'v')": 8,
    "DELETE FROM #.ranges WHERE p = :p AND c > :c": 2,
    "DELETE FROM #.ranges WHERE p = :p AND c = :c AND d >= 'a' AND d < 'z'": 2,
    "INSERT INTO #.bulk (p, v) VALUES (:p, :b)": 10,
    "UPDATE #.counted SET n = n + 1 WHERE p = :p": 2,
    "INSERT INTO #.plain (p, v) VALUES (:p, :t)": 4,
    "BEGIN BATCH INSERT INTO #.plain (p, v) VALUES (:p, :t); INSERT INTO #.rows (p, c, v) VALUES (:p, :c, :t);"
    " INSERT INTO #.ranges (p, c, d, v) VALUES (:p, :c, 'd', :t); APPLY BATCH": 5,
    "BEGIN BATCH DELETE FROM #.rows WHERE p = :p AND c > :c; INSERT INTO #.rows (p, c, v) VALUES (:p, :c, :t);"
    " UPDATE #.plain SET v = :t WHERE p = :p; UPDATE #.rows SET s = :t WHERE p = :p; APPLY BATCH": 3,
    "BEGIN BATCH INSERT INTO #.bulk (p, v) VALUES (:p, :b); DELETE FROM #.ranges WHERE p = :p; APPLY BATCH": 2,
}
"""Statements and how often each comes."""

_IN_FLIGHT: Final = 16
UNANSWERED: Final = (DriverException, NoHostAvailable, ConnectionException)
"""What the driver raises where a node refuses, or does not answer."""


class Load(Background):
    """Statements, `rate` a second, until it is closed. What Cassandra refuses or does not answer is left at that: what
    was written is what the log has. `bulk` bytes is a large value's size."""

    def __init__(
        self, cassandra: LocalCassandra, keyspace: str, *, seed: int = 1, rate: float = 300, bulk: int = 4000
    ) -> None:
        super().__init__(self._send_some, 0.0)
        self.sent = 0
        self.refused = 0
        self._random = Random(seed)
        self._gap = 1 / rate
        self._bulk = bulk
        self._turn = threading.Lock()
        self._cluster = connect_again(cassandra)
        session = self._session = self._cluster.connect()
        self._kinds = [session.prepare(kind.replace("#", keyspace)) for kind in _KINDS]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing of it is on its way to Cassandra meanwhile."""
        with self._turn:
            yield

    def until(self, more: int) -> None:
        """Wait until so many statements more were sent."""
        goal = self.sent + more
        until(lambda: self.sent >= goal, f"{more} more statements", 120, every=0.005)

    def end(self) -> None:
        super().end()
        self._cluster.shutdown()

    def _send_some(self) -> None:
        began = time.monotonic()
        with self._turn:
            flying = [self._send() for _ in range(_IN_FLIGHT)]
            for one in flying:
                self._land(one)
        self.pause = max(0.0, began + _IN_FLIGHT * self._gap - time.monotonic())

    def _send(self) -> ResponseFuture | None:
        values = self._values()
        (kind,) = self._random.choices(self._kinds, list(_KINDS.values()))
        wanted = [values[column.name] for column in kind.column_metadata]
        self.sent += 1
        try:
            return self._session.execute_async(kind, wanted, timeout=5)
        except UNANSWERED:
            self.refused += 1
            return None

    def _land(self, one: ResponseFuture | None) -> None:
        try:
            if one is not None:
                one.result()
        except UNANSWERED:
            self.refused += 1

    def _values(self) -> dict[str, Any]:
        random = self._random
        return {
            "p": random.randrange(200),
            "c": random.randrange(-20, 20),
            "t": "text" * random.randrange(1, 40),
            "n": random.getrandbits(random.randrange(1, 120)) - 2**20,
            "b": random.randbytes(self._bulk),
        }


def connect_again(cassandra: LocalCassandra) -> Cluster:
    """A driver that is back soon after a node was, and asks nothing a second time."""
    profile = ExecutionProfile(
        load_balancing_policy=WhiteListRoundRobinPolicy([cassandra.address]),
        request_timeout=BUSY_SECONDS,
        retry_policy=FallthroughRetryPolicy(),
    )
    return Cluster(
        [cassandra.address],
        port=cassandra.port,
        protocol_version=5,
        connect_timeout=BUSY_SECONDS,
        control_connection_timeout=BUSY_SECONDS,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        reconnection_policy=ConstantReconnectionPolicy(0.3, max_attempts=None),
    )
