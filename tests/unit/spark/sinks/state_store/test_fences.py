"""Claims of one name in a database, and tasks: who waits for whom, and who may write no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from tailrace_schemas.errors import FencedError, ServiceError
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import MicroBatch
from tailrace_spark.sinks.state_store.engine import open_engine
from tailrace_spark.sinks.state_store.fences import FENCES, PARTITIONS, Claim, Fence, begin_partition
from tailrace_spark.sinks.state_store.tables import make_tables
from tests.unit.spark.sinks.contract import LONGEST_TOPIC, Database

STREAM = "0d4f8c0f5e0b4dd0a7d4f3f0a1b2c3d4"
FIRST: KafkaPartition = (LONGEST_TOPIC, 0)
SECOND: KafkaPartition = (LONGEST_TOPIC, 1)
BATCH = MicroBatch(STREAM, 0, {FIRST: 100, SECOND: 100})
# As short as each database lets it be.
IMPATIENT = {
    "sqlite": "PRAGMA busy_timeout = 0",
    "postgresql": "SET lock_timeout = '1ms'",
    "mysql": "SET SESSION innodb_lock_wait_timeout = 1",
}
Work = Callable[[], object]


class Store:
    """A database with the tables of fences."""

    def __init__(self, database: Database) -> None:
        self.engine, self.hurried = open_engine(database.url), open_engine(database.url)

        @sa.event.listens_for(self.hurried, "connect")
        def _connect(connection: Any, _record: object) -> None:
            connection.cursor().execute(IMPATIENT[database.dialect])
            connection.commit()

        with self.engine.begin() as connection:
            make_tables(connection, (FENCES, PARTITIONS))

    def claim(self, name: str = STREAM) -> Claim:
        """One of a process of its own."""
        return Claim(self.engine, name)

    def take(self, claim: Claim) -> int:
        """The token that it takes now, without waiting."""
        claim.renew("")
        claim.take(self.hurried.begin())
        return claim.fence.token

    def look(self, fence: Fence) -> None:
        """In a transaction of its own, without waiting."""
        with self.hurried.begin() as connection:
            fence.require(connection)

    def begin(self, partition: KafkaPartition) -> None:
        """The same."""
        with self.hurried.begin() as connection:
            begin_partition(connection, BATCH, partition)

    def waits(self, work: Work) -> bool:
        """Whether it would have to wait."""
        try:
            work()
        except OperationalError as error:
            if not any(word in str(error).lower() for word in ("lock", "timeout")):
                raise
            return True
        return False

    def close(self) -> None:
        self.engine.dispose()
        self.hurried.dispose()


@pytest.fixture
def store(database: Database) -> Iterator[Store]:
    made = Store(database)
    yield made
    made.close()


@pytest.fixture
def server_store(server_database: Database) -> Iterator[Store]:
    """Of a database that has locks of rows."""
    made = Store(server_database)
    yield made
    made.close()


@pytest.mark.promise("tasks.fence", "tasks.one-driver", "sink.successor")
@pytest.mark.parametrize("earlier", [0, 1], ids=["their first", "a later one"])
def test_of_two_claims_at_once_the_second_waits_and_has_the_newer_token(store: Store, earlier: int) -> None:
    """It waits from the first one's first statement on, also where there is no row yet that a lock could hold."""
    first, second, waits = store.claim(), store.claim(), list[bool]()
    for _ in range(earlier):
        store.take(store.claim())

    def executed(*_: object) -> None:
        waits.append(store.waits(lambda: store.take(second)))

    @contextmanager
    def watched() -> Iterator[sa.Connection]:
        with store.engine.begin() as connection:
            sa.event.listen(connection, "after_cursor_execute", executed, once=True)
            yield connection

    first.take(watched())
    assert (waits, first.fence.token) == ([True], earlier + 1)
    assert store.take(second) == earlier + 2
    with pytest.raises(FencedError, match="another process writes"):
        store.take(first)
    assert store.take(second) == earlier + 3


@pytest.mark.promise("tasks.one-driver")
def test_a_claim_that_is_refused_or_undone_leaves_the_token_as_it_was(store: Store) -> None:
    first, second = store.claim(), store.claim()

    @contextmanager
    def undone() -> Iterator[sa.Connection]:
        with store.engine.begin() as connection:
            yield connection
            raise ConnectionError

    with pytest.raises(ConnectionError):
        first.take(undone())
    assert first.due, "whether it has the token is not known"
    assert store.take(first) == 1
    assert store.take(second) == 2
    for _ in range(2):
        with pytest.raises(FencedError):
            store.take(first)
    assert store.take(second) == 3


@pytest.mark.promise("sink.successor", "tasks.fence")
def test_a_claim_waits_for_who_has_looked_and_for_nobody_else(server_store: Store) -> None:
    store, first, second = server_store, server_store.claim(), server_store.claim()
    store.take(first)
    with store.engine.begin() as connection:
        begin_partition(connection, BATCH, FIRST)
        first.require(connection)
        store.look(first.fence)  # others of the same claim
        assert store.waits(lambda: store.take(second))
        assert store.take(store.claim("another")) == 1
    assert store.take(second) == 2


@pytest.mark.promise("sink.successor", "tasks.fence")
def test_a_look_waits_for_a_claim_and_is_then_refused(server_store: Store) -> None:
    store, first, second = server_store, server_store.claim(), server_store.claim()
    store.take(first)

    @contextmanager
    def watched() -> Iterator[sa.Connection]:
        with store.engine.begin() as connection:
            yield connection
            assert store.waits(lambda: store.look(first.fence))

    second.take(watched())
    with pytest.raises(FencedError, match="another process writes"):
        store.look(first.fence)
    store.look(second.fence)


@pytest.mark.promise("sink.successor")
def test_a_writer_that_has_read_before_a_claim_is_refused_after_it(server_store: Store) -> None:
    """Whatever its transaction has read by then, of the token too, the look finds what is there now."""
    store, first, second = server_store, server_store.claim(), server_store.claim()
    store.take(first)
    with store.engine.connect() as connection, connection.begin():
        assert connection.execute(sa.select(FENCES.c.token)).scalars().all() == [1]
        store.take(second)
        with pytest.raises(FencedError):
            first.require(connection)


def test_a_token_that_the_database_has_lost_is_no_other_process(store: Store) -> None:
    first, second = store.claim(), store.claim()
    for claim in (first, second):
        store.take(claim)
    for lost in (FENCES.update().values(token=1), FENCES.delete()):
        with store.engine.begin() as connection:
            connection.execute(lost)
        with pytest.raises(ServiceError, match="restored from a backup"):
            store.look(second.fence)
    assert store.take(second) == 1
    store.look(second.fence)


@pytest.mark.promise("tasks.attempts")
def test_of_two_attempts_at_a_partition_the_second_waits(server_store: Store) -> None:
    store = server_store
    with store.engine.begin() as connection:
        begin_partition(connection, BATCH, FIRST)
        assert not store.waits(lambda: store.begin(SECOND))
        assert store.waits(lambda: store.begin(FIRST))
    store.begin(FIRST)
