"""A subscription in a Spark application of its own: its process is killed, then its worker, and it goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa

from tailrace.local import LocalKafka
from tailrace_server.operations.asking import Asked
from tests.integration.feed import Feed
from tests.integration.items import Load, Source, is_through, rows
from tests.integration.server.servers import ServerProcess, Site
from tests.integration.streams import processes_of
from tests.unit.spark.sinks.contract import Database

PROGRAM = b"tailrace_server.worker.application"
SPARK = {"spark.driver.memory": "600m", "spark.sql.shuffle.partitions": 2}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """An empty one."""
    url = f"sqlite:///{tmp_path / 'target.db'}"
    database = Database(url, sa.create_engine(url))
    yield database
    database.engine.dispose()


def applications(server: ServerProcess) -> list[int]:
    """The processes of subscriptions' own applications."""
    return processes_of(server.process.pid, PROGRAM)


def killed(server: ServerProcess) -> int:
    """The process of the one application, which is killed with -9."""
    server.until(lambda: len(applications(server)) == 1)
    [process] = applications(server)
    os.kill(process, signal.SIGKILL)
    server.until(lambda: process not in applications(server))
    return process


@pytest.mark.long
@pytest.mark.promise("subscription.own-application", "subscription.take-over")
@pytest.mark.timeout(900)
def test_it_goes_on_where_its_process_or_its_worker_is_killed(
    tmp_path: Path, kafka: LocalKafka, prefix: str, feed: Feed, database: Database
) -> None:
    site, source = Site(tmp_path, kafka, prefix, f"sqlite:///{tmp_path / 'meta.db'}"), Source(3)
    with site.operations() as operations:
        sink = {"type": "sql", "url": database.url}
        operations.subscribe(Asked(table="shop.items", name="own", sink=sink, spark=SPARK))
    with ExitStack() as stack:
        first = stack.enter_context(site.server("first"))
        with Load(feed, source, seconds=0.5):
            first.until(lambda: bool(rows(database)))
            process = killed(first)
            first.until(lambda: site.states()["own"]["state"] == "failing")
            assert "ended by SIGKILL" in site.states()["own"]["reason"]
            written = rows(database)
            first.until(lambda: site.states()["own"]["state"] == "active" and rows(database) != written)
            [again] = applications(first)
            assert again != process
            first.kill()
            second = stack.enter_context(site.server("second"))
            second.until(lambda: str(second.process.pid) in str(site.owners()) and not Path(f"/proc/{again}").exists())
        feed.publish(source.last())
        second.until(lambda: is_through(database))
        assert rows(database) == source.rows()
        site.tailrace("pause", "own")
        second.until(lambda: applications(second) == [] and site.owners() == {None})
        site.tailrace("resume", "own")
        second.until(lambda: len(applications(second)) == 1)
        assert second.stop() == 0, second.words()
    assert site.owners() == {None}
