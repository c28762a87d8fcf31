"""Plans and tasks of one stream in a database: who waits for whom, and who may write no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from tailrace_schemas.errors import FencedError
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.task_batch import TaskBatch
from tailrace_spark.sinks.state_store.engine import open_engine
from tailrace_spark.sinks.state_store.fences import FENCES, PARTITIONS, PlanTokens, begin_partition
from tailrace_spark.sinks.state_store.formats import make_tables
from tests.unit.spark.sinks.contract import Database

STREAM = "0d4f8c0f5e0b4dd0a7d4f3f0a1b2c3d4"
FIRST: KafkaPartition = ("t.shop.plain", 0)
SECOND: KafkaPartition = ("t.shop.plain", 1)
BATCH = TaskBatch(STREAM, 0, {FIRST: 100, SECOND: 100})
# As short as each database lets it be.
IMPATIENT = {
    "sqlite": "PRAGMA busy_timeout = 0",
    "postgresql": "SET lock_timeout = '1ms'",
    "mysql": "SET SESSION innodb_lock_wait_timeout = 1",
}
Work = Callable[[sa.Connection], object]


class Stream:
    """A database with the tables of fences."""

    def __init__(self, database: Database) -> None:
        self.engine, self._hurried = open_engine(database.url), open_engine(database.url)

        @sa.event.listens_for(self._hurried, "connect")
        def _connect(connection: Any, _record: object) -> None:
            connection.cursor().execute(IMPATIENT[database.dialect])
            connection.commit()

        with self.engine.begin() as connection:
            make_tables(connection, (FENCES, PARTITIONS))

    def do(self, work: Work) -> Any:
        """In a transaction of its own, which waits for nothing."""
        with self._hurried.begin() as connection:
            return work(connection)

    def waits(self, work: Work) -> bool:
        """Whether it would have to wait."""
        try:
            self.do(work)
        except OperationalError as error:
            if not any(word in str(error).lower() for word in ("lock", "timeout")):
                raise
            return True
        return False

    def close(self) -> None:
        self.engine.dispose()
        self._hurried.dispose()


@pytest.fixture
def stream(database: Database) -> Iterator[Stream]:
    made = Stream(database)
    yield made
    made.close()


@pytest.fixture
def server_stream(server_database: Database) -> Iterator[Stream]:
    """Of a database that has locks of rows."""
    made = Stream(server_database)
    yield made
    made.close()


def planned(tokens: PlanTokens, stream: str = STREAM) -> Work:
    return lambda connection: tokens.next(connection, stream)


def begun(partition: KafkaPartition, token: int) -> Work:
    return lambda connection: begin_partition(connection, BATCH, token, partition)


@pytest.mark.promise("tasks.fence", "tasks.one-driver")
@pytest.mark.parametrize("earlier", [0, 1], ids=["their first", "a later one"])
def test_of_two_plans_at_once_the_second_waits_and_has_the_newer_token(stream: Stream, earlier: int) -> None:
    """It waits from the first one's first statement on, also where there is no row yet that a lock could hold."""
    first, second, waits = PlanTokens(), PlanTokens(), list[bool]()
    for _ in range(earlier):
        stream.do(planned(PlanTokens()))

    def executed(*_: object) -> None:
        waits.append(stream.waits(planned(second)))

    with stream.engine.begin() as connection:
        sa.event.listen(connection, "after_cursor_execute", executed, once=True)
        assert first.next(connection, STREAM) == earlier + 1
    assert waits == [True]
    assert stream.do(planned(second)) == earlier + 2
    with pytest.raises(FencedError, match="another process writes the stream"):
        stream.do(planned(first))
    assert stream.do(planned(second)) == earlier + 3


@pytest.mark.promise("tasks.one-driver")
def test_a_plan_that_is_refused_or_undone_leaves_the_token_as_it_was(stream: Stream) -> None:
    first, second = PlanTokens(), PlanTokens()
    with stream.engine.connect() as connection, connection.begin() as undone:
        assert first.next(connection, STREAM) == 1
        undone.rollback()
    assert stream.do(planned(first)) == 1
    assert stream.do(planned(second)) == 2
    for _ in range(2):
        with pytest.raises(FencedError):
            stream.do(planned(first))
    assert stream.do(planned(second)) == 3


@pytest.mark.promise("tasks.fence", "tasks.attempts")
def test_a_plan_waits_for_tasks_and_tasks_of_other_partitions_do_not(server_stream: Stream) -> None:
    stream, tokens = server_stream, PlanTokens()
    assert stream.do(planned(tokens)) == 1
    with stream.engine.begin() as connection:
        begin_partition(connection, BATCH, 1, FIRST)
        assert not stream.waits(begun(SECOND, 1))
        assert stream.waits(begun(FIRST, 1))
        assert stream.waits(planned(tokens))
        assert not stream.waits(planned(PlanTokens(), "another stream"))
    assert stream.do(planned(tokens)) == 2


@pytest.mark.promise("tasks.fence")
def test_a_task_waits_for_a_plan_and_is_then_refused(server_stream: Stream) -> None:
    stream, tokens = server_stream, PlanTokens()
    assert stream.do(planned(tokens)) == 1
    with stream.engine.begin() as connection:
        assert tokens.next(connection, STREAM) == 2
        assert stream.waits(begun(FIRST, 1))
    with pytest.raises(FencedError, match="batch 0 has a newer attempt"):
        stream.do(begun(FIRST, 1))
    stream.do(begun(FIRST, 2))
