"""kill -9 in the middle of a snapshot and behind it, while the table is written: the copy is what SELECT answers."""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
import sqlalchemy as sa

from tailrace_schemas.errors import CorruptError
from tailrace_spark.snapshot.progress import Snapshots, State, snapshots_from_json
from tests.integration.processes import PROGRAM
from tests.integration.snapshot import dying_snapshot
from tests.integration.snapshot.dying_snapshot import Step
from tests.integration.snapshot.following import KEYS, Place, Writes
from tests.integration.streams import StreamProcess
from tests.oracle.comparison import Difference, Downstream, ask, differences
from tests.postgres import new_database

_LOG = logging.getLogger("tailrace.test")
LIMITS = {"consistency": "ONE", "ranges": 16, "page_rows": 20, "concurrent_ranges": 2, "range_mebibytes": 1}
STEPS = {Step.NOTING: 2, Step.NOTED: 1, Step.READ: 1, Step.WRITING: 2, Step.WRITTEN: 1, Step.DONE: 1}
"""The steps in an order in which rounds are left for each, and at which time it dies there."""
SECONDS = 300.0
"""A start of Spark and a round, where the machine has much to do."""


class Copy:
    """A table with rows before its log, writes to it, and a stream that copies it into PostgreSQL."""

    def __init__(self, place: Place, name: str, directory: Path, execution: str, master: str) -> None:
        self.place = place
        self.name = name
        self.store = Downstream(new_database())
        self._directory = directory
        self._master = master
        self._settings = {
            # The log before the start is not read: only the snapshot has what was written till then.
            "starting_offsets": '"latest"', "snapshot": '"initial"', "execution": json.dumps(execution),
            "metrics_port": 0, "topics": json.dumps(rf"{place.prefix}\.{place.keyspace}\.{name}"),
        }  # fmt: skip

    def stream(self, name: str, program: tuple[str, ...] = PROGRAM) -> StreamProcess:
        sections = {"cluster": self.place.sections(self.name)["cluster"], "snapshot": LIMITS}
        return StreamProcess(
            self._directory, self.place.kafka, self.place.prefix, self.store.url,
            name=name, stream=self._settings, sections=sections, program=program, master=self._master,
        )  # fmt: skip

    @property
    def progress(self) -> Snapshots:
        """How far the snapshot is, by the newest note that is whole."""
        values = [Snapshots()]
        for file in (self._directory / "checkpoint" / "tailrace").glob("snapshots-?.json"):
            with suppress(CorruptError, FileNotFoundError):  # cut off, as the step says, or about to be replaced
                values.append(snapshots_from_json(file.read_text()))
        return max(values, key=lambda value: value.sequence)

    @property
    def rows(self) -> int:
        """How many rows are noted as written."""
        return sum(snapshot.rows for snapshot in self.progress.tables)

    @property
    def done(self) -> bool:
        """Whether the snapshot is over."""
        return {snapshot.state for snapshot in self.progress.tables} == {State.DONE}

    def differences(self) -> list[Difference]:
        return differences(ask(self.place.session, [self.place.table(self.name)]), self.store)

    def finish(self, stream: StreamProcess, writes: Writes) -> None:
        """Wait for the end of the snapshot, and that nothing differs."""
        stream.until(lambda: self.done, 2 * SECONDS)
        writes.end()
        stream.until(lambda: self.differences() == [], SECONDS)
        [answer] = ask(self.place.session, [self.place.table(self.name)])
        [snapshot] = self.progress.tables
        _LOG.info(
            "%s: %d rows in %d rounds, %d writes; in the end %s",
            self.name, snapshot.rows, snapshot.rounds, writes.count, dict(answer.counts),
        )  # fmt: skip
        assert self.store.set_aside() == []
        assert len(answer.rows) > KEYS


@contextmanager
def copied(
    place: Place, name: str, directory: Path, execution: str, master: str = "local[1]"
) -> Iterator[tuple[Copy, Writes]]:
    place.create(name)
    copy = Copy(place, name, directory, execution, master)
    with closing(copy.store), Writes(place, name) as writes:
        yield copy, writes


@pytest.mark.promise("snapshots.resumes", "snapshots.equal")
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("execution", ["driver", "executors"])
def test_a_stream_that_is_killed_at_each_step_of_its_snapshot_and_behind_it_resumes_at_the_range(
    place: Place, tmp_path: Path, execution: str
) -> None:
    with copied(place, f"killed_{execution}", tmp_path, execution) as (copy, writes):
        rows = 0
        for step, time in STEPS.items():
            with copy.stream("dying", (dying_snapshot.__file__, step, str(time))) as dying:
                assert dying.ended(SECONDS) == -signal.SIGKILL, f"{step}\n{dying.words()}"
            assert copy.rows >= rows, step
            rows = copy.rows
            _LOG.info("killed at %r: %d rows of the snapshot are noted, %d writes", str(step), rows, writes.count)
        assert rows > 0
        with copy.stream("stream") as stream:
            stream.until(lambda: copy.done, SECONDS)
            behind = writes.count
            stream.until(lambda: writes.count > behind + 50, SECONDS)
            stream.kill()
        with copy.stream("stream") as stream:
            copy.finish(stream, writes)
            assert stream.stop() == 0, stream.words()


@pytest.mark.promise("snapshots.resumes", "snapshots.equal")
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("execution", ["driver", "executors"])
def test_executors_and_the_sink_that_are_killed_in_a_snapshot_lose_nothing(
    place: Place, tmp_path: Path, execution: str
) -> None:
    with (
        copied(place, f"lost_{execution}", tmp_path, execution, "local-cluster[2,1,1024]") as (copy, writes),
        copy.stream("stream") as stream,
    ):
        stream.until(lambda: copy.rows > 0, SECONDS)
        killed = executors_of(stream.process.pid)
        assert killed
        os.kill(killed[0], signal.SIGKILL)
        _LOG.info("an executor is killed: %d rows of the snapshot are noted", copy.rows)
        stream.until(lambda: len(set(executors_of(stream.process.pid)) - set(killed)) > 0, SECONDS)
        crash(copy.store.url)
        _LOG.info("PostgreSQL is killed: %d rows of the snapshot are noted", copy.rows)
        copy.finish(stream, writes)
        assert stream.stop() == 0, stream.words()


def executors_of(driver: int) -> list[int]:
    """The ids of the Java processes of a driver's executors."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    family = {driver}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    executors = []
    for pid in family:
        with suppress(OSError):
            if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes():
                executors.append(pid)
    return sorted(executors)


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
