"""kill -9 of `tailrace stream` and of its Java, under load: the sink comes out equal to what was published."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

import pytest

from tailrace.local import LocalKafka
from tests.integration import dying_stream
from tests.integration.dying_stream import Step
from tests.integration.feed import Feed
from tests.integration.items import Load, Source, is_through, rows
from tests.integration.letters import letters_in
from tests.integration.streams import StreamProcess, has_workers, kill_all, kills
from tests.postgres import new_database
from tests.unit.spark.sinks.contract import Database


class Trial:
    """One source, its topics, one sink, and the processes between them."""

    def __init__(
        self, place: Path, kafka: LocalKafka, prefix: str, url: str, *, execution: str = "driver", seed: int = 1
    ) -> None:
        self._place, self._kafka, self._prefix, self._url = place, kafka, prefix, url
        self._settings = {"execution": json.dumps(execution)}
        self.execution = execution
        self._feed = Feed(kafka.bootstrap, prefix)
        self._feed.announce()
        self.database = Database(url)
        self.source = Source(seed)

    def close(self) -> None:
        self.database.close()
        self._feed.close()

    def load(self) -> Load:
        return Load(self._feed, self.source)

    def stream(self) -> StreamProcess:
        """A stream, not started."""
        return StreamProcess(self._place, self._kafka, self._prefix, self._url, stream=self._settings)

    def die_at(self, step: Step, nth: int) -> None:
        """A stream that ends itself at a step."""
        program = (dying_stream.__file__, step, str(nth))
        dying = StreamProcess(
            self._place, self._kafka, self._prefix, self._url, name="dying", program=program, stream=self._settings
        )
        with dying as stream:
            assert stream.ended() == -signal.SIGKILL, f"{step}\n{stream.words()}"

    def settle(self, stream: StreamProcess) -> None:
        """Wait until the sink has all there is, and all that expires has: it shows what the source does.

        Nothing was set aside, and the stream ends well.
        """
        self._feed.publish(self.source.last())
        stream.until(lambda: is_through(self.database))
        assert rows(self.database) == self.source.rows()
        assert letters_in(self._kafka, self._prefix) == []
        assert self.database.select("SELECT * FROM tailrace_deferred_changes") == []
        assert stream.stop() == 0, stream.words()


@pytest.fixture(params=[pytest.param("sqlite", marks=pytest.mark.long), "postgresql"])
def trial(request: pytest.FixtureRequest, kafka: LocalKafka, prefix: str, tmp_path: Path) -> Iterator[Trial]:
    """One with an empty sink, which the driver writes."""
    url = f"sqlite:///{tmp_path / 'sink.db'}" if request.param == "sqlite" else new_database()
    trial = Trial(tmp_path, kafka, prefix, url)
    yield trial
    trial.close()


@pytest.fixture
def task_trial(kafka: LocalKafka, prefix: str, tmp_path: Path) -> Iterator[Trial]:
    """One with an empty PostgreSQL, which tasks write."""
    trial = Trial(tmp_path, kafka, prefix, new_database(), execution="executors")
    yield trial
    trial.close()


@pytest.mark.spine
@pytest.mark.promise("stream.killed")
def test_a_killed_stream_goes_on(trial: Trial) -> None:
    """At the steps where most is at stake; at all of them, and at any time, `test_many_times`."""
    with trial.load():
        for step in (Step.MERGED, Step.COMMITTED):
            trial.die_at(step, 2)
    with trial.stream() as stream:
        trial.settle(stream)


@pytest.mark.promise("stream.killed")
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_times(trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    """Two thirds at each step in turn, a third at any time: both processes, Python alone, or Java alone."""
    random, steps = Random(7), [step for step in Step if step not in {Step.OWNING, Step.PLANNED, Step.TASKS}]
    victims: tuple[dict[str, bool], ...] = ({}, {"java": False}, {"python": False})
    with trial.load() as load:
        trial.die_at(Step.OWNING, 1)  # a checkpoint is only owned once
        for number in range(kills(60)):
            if number % 3:
                trial.die_at(steps[(number - number // 3) % len(steps)], random.randrange(1, 4))
            else:
                with trial.stream() as stream:
                    load.until(random.randrange(400, 1800))
                    stream.kill(**victims[number // 3 % 3])
            with capsys.disabled():
                sys.stdout.write(f"\r{number + 1} kills, {load.sent} changes")
    with trial.stream() as stream:
        trial.settle(stream)
    with capsys.disabled():
        sys.stdout.write(f"\nkill -9 of the stream: {kills(60)} kills, {load.sent} changes, no difference\n")


TASK_STEPS = (Step.NOTED, Step.PLANNED, Step.TASKS, Step.COMMITTED, Step.SWEPT)


@pytest.mark.promise("stream.killed")
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_times_by_tasks(task_trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    """A third at the driver's steps, a third of all processes at any time, a third of the tasks' Pythons alone."""
    random, killed = Random(11), 0
    with task_trial.load() as load:
        for number in range(kills(30)):
            if number % 3 == 0:
                task_trial.die_at(TASK_STEPS[number // 3 % len(TASK_STEPS)], random.randrange(1, 4))
                killed += 1
                continue
            with task_trial.stream() as stream:
                stream.until(partial(has_workers, stream))
                load.until(random.randrange(600))
                if number % 3 == 1:
                    stream.kill()
                    killed += 1
                else:
                    killed += kill_all(stream.workers)
            with capsys.disabled():
                sys.stdout.write(f"\r{killed} kills, {load.sent} changes")
    with task_trial.stream() as stream:
        task_trial.settle(stream)
    with capsys.disabled():
        sys.stdout.write(f"\nkill -9 of tasks and their driver: {killed} kills, {load.sent} changes, no difference\n")
