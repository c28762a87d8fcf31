"""kill -9 in the middle of a snapshot and behind it, while its tables are written: the copy is what SELECT answers."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
import sqlalchemy as sa

from tailrace.local import LocalCassandra, LocalKafka
from tests.integration.snapshot import dying_snapshot
from tests.integration.snapshot.copies import SECONDS, copied
from tests.integration.snapshot.dying_snapshot import Step
from tests.integration.snapshot.following import Place, placed
from tests.integration.streams import descendants_of
from tests.integration.targets import POSTGRESQL, TARGETS, Target
from tests.integration.ways import Ground, Way

_LOG = logging.getLogger("tailrace.test")
STEPS: Final = {Step.NOTING: 2, Step.NOTED: 1, Step.READ: 1, Step.WRITING: 2, Step.WRITTEN: 1, Step.DONE: 1}
"""The steps in an order in which rounds are left for each, and at which time it dies there."""
_OF_SINK: Final = {Step.WRITING: 2, Step.WRITTEN: 1}
WAYS: Final[Mapping[str, tuple[Way[Target], str, int, Mapping[Step, int]]]] = {
    "postgresql": (POSTGRESQL, "driver", 1, STEPS),
    "delta, current, tasks": (TARGETS["delta, current"], "executors", 3, _OF_SINK),
    "files, tasks": (TARGETS["files"], "executors", 10, _OF_SINK),
    "kafka, tasks": (TARGETS["kafka"], "executors", 12, _OF_SINK),
}
"""Sinks, who writes them, the seed of a random program, and steps: a snapshot's own are the same for all sinks.

One of those that merge in transactions, of lakes, of those that write a file again, and of those that count what they
wrote. For others a redelivered row is any row.
"""


@pytest.fixture(scope="module")
def place(cassandra: LocalCassandra, kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """All streams are processes of their own: there is no Spark in this one."""
    with placed(cassandra, kafka, tmp_path_factory.mktemp("place")) as new:
        yield new


@pytest.mark.promise("snapshots.resumes", "snapshots.equal", "snapshots.once")
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", WAYS)
def test_a_stream_that_is_killed_at_each_step_of_its_snapshot_and_behind_it_resumes_at_the_range(
    place: Place, tmp_path: Path, ground: Ground, name: str
) -> None:
    way, execution, seed, steps = WAYS[name]
    if (trouble := way.missing()) is not None:
        pytest.skip(trouble)
    table = "killed_" + "_".join(name.replace(",", "").split())
    with copied(place, table, tmp_path, way.new(ground), execution=execution, seed=seed) as copy:
        rows = 0
        for step, time in steps.items():
            with copy.stream("dying", (dying_snapshot.__file__, step, str(time))) as dying:
                assert dying.ended(SECONDS) == -signal.SIGKILL, f"{step}\n{dying.words()}"
            assert copy.rows >= rows, step
            rows = copy.rows
            _LOG.info("killed at %r: %d rows of the snapshots are noted, %d writes", str(step), rows, copy.written)
        assert rows > 0
        with copy.stream("stream") as stream:
            stream.until(lambda: copy.done, SECONDS)
            behind = copy.written
            stream.until(lambda: copy.written > behind + 50, SECONDS)
            stream.kill()
        with copy.stream("stream") as stream:
            copy.finish(stream)
            assert stream.stop() == 0, stream.words()


@pytest.mark.promise("snapshots.resumes", "snapshots.equal")
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("execution", ["driver", "executors"])
def test_executors_and_the_sink_that_are_killed_in_a_snapshot_lose_nothing(
    place: Place, tmp_path: Path, ground: Ground, execution: str
) -> None:
    target = POSTGRESQL.new(ground)
    with (
        copied(
            place, f"lost_{execution}", tmp_path, target, execution=execution, master="local-cluster[2,1,1024]"
        ) as copy,
        copy.stream("stream") as stream,
    ):
        stream.until(lambda: copy.rows > 0, SECONDS)
        killed = executors_of(stream.process.pid)
        assert killed
        os.kill(killed[0], signal.SIGKILL)
        _LOG.info("an executor is killed: %d rows of the snapshots are noted", copy.rows)
        stream.until(lambda: len(set(executors_of(stream.process.pid)) - set(killed)) > 0, SECONDS)
        crash(str(target.section["url"]))
        _LOG.info("PostgreSQL is killed: %d rows of the snapshots are noted", copy.rows)
        copy.finish(stream)
        assert stream.stop() == 0, stream.words()


def executors_of(driver: int) -> list[int]:
    """The ids of the Java processes of a driver's executors."""
    return descendants_of(driver, b"CoarseGrainedExecutorBackend")


def crash(url: str) -> None:
    """kill -9 of one of PostgreSQL's processes: the server ends all others, and recovers from its log."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        [pid] = connection.exec_driver_sql("SELECT pg_backend_pid()").scalars()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(sa.exc.OperationalError):
            connection.exec_driver_sql("SELECT 1")
        connection.invalidate()
    engine.dispose()
