"""kill -9 of `tailrace stream` and of its Java, under load, into every kind of sink: nothing is lost or distorted."""

from __future__ import annotations

import json
import signal
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from tailrace.local import LocalKafka
from tests.held import Record, hold
from tests.integration import dying_stream
from tests.integration.dying_stream import Step
from tests.integration.feed import Feed
from tests.integration.items import ITEMS, LAST, Load, Source
from tests.integration.letters import letters_in
from tests.integration.streams import StreamProcess, has_workers, kill_all, kills
from tests.integration.targets import TARGETS, Target
from tests.integration.ways import Ground, Way
from tests.support.waiting import until

_STEPS: Final = (Step.NOTING, Step.NOTED, Step.READ, Step.WRITING, Step.COMMITTED)
_BY_THE_DRIVER: Final = ("delta, current", "kafka")
"""A sink that writes files and commits them, one that writes in a transaction; tasks write all of them."""
_TASK_STEPS: Final = (Step.TASKS, Step.PLANNED, Step.COMMITTED, Step.NOTED)


@pytest.fixture
def _held(way: Way[Target], record_property: Record) -> None:
    if (trouble := way.missing()) is not None:
        pytest.skip(trouble)
    hold(record_property, way.sink, "kill -9", way.server())


@pytest.fixture
def target(_held: None, way: Way[Target], ground: Ground) -> Target:
    """An empty one."""
    return way.new(ground)


class Killed:
    """A stream under load into a target, killed again and again."""

    def __init__(self, target: Target, kafka: LocalKafka, prefix: str, place: Path, execution: str) -> None:
        self._target, self._kafka, self._prefix, self._place = target, kafka, prefix, place
        self._settings = {"execution": json.dumps(execution)}
        self.source, self.feed = Source(3), Feed(kafka.bootstrap, prefix)
        self.feed.announce()
        self.killed = 0

    def close(self) -> None:
        self.feed.close()

    def stream(self, **more: Any) -> StreamProcess:
        """One, not started."""
        section = self._target.section
        stream = StreamProcess(self._place, self._kafka, self._prefix, section, stream=self._settings, **more)
        stream.patience = 900.0  # of what is read at once behind all the kills, where much else runs too
        return stream

    def die_at(self, step: Step, nth: int) -> None:
        """A stream that ends itself at a step."""
        with self.stream(name="dying", program=(dying_stream.__file__, step, str(nth))) as dying:
            assert dying.ended(900) == -signal.SIGKILL, f"{step}\n{dying.words()}"
        self.killed += 1

    def kill_tasks(self, running: StreamProcess) -> None:
        """Kill the Pythons of its tasks alone, as soon as there are any."""

        def killed() -> bool:
            count = kill_all(running.workers)
            self.killed += count
            return count > 0

        running.until(killed)

    def settle(self, sent: int) -> int:
        """Write the last rows, and have a stream bring all to its end; how many changes there were."""
        self.feed.publish(self.source.last())
        with self.stream() as running:
            running.until(lambda: self._target.arrived(sent + LAST) and self._equal())
            assert running.stop() == 0, running.words()
        # A row that had expired when it was written into Cassandra may show for another second.
        until(self._equal, "an equal target")
        self._target.require(sent + LAST)
        assert letters_in(self._kafka, self._prefix) == []
        return sent + LAST

    def _equal(self) -> bool:
        return sorted(self._target.rows(ITEMS), key=repr) == sorted(self.source.rows(), key=repr)


@pytest.mark.promise("sinks.killed")
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", [TARGETS[name] for name in _BY_THE_DRIVER], ids=_BY_THE_DRIVER)
def test_sinks_that_the_driver_writes_outlive_kills(
    target: Target, kafka: LocalKafka, prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two thirds at steps, a third at any time: both processes, Python alone, or Java alone."""
    random = Random(5)
    victims: tuple[dict[str, bool], ...] = ({}, {"java": False}, {"python": False})
    with closing(Killed(target, kafka, prefix, tmp_path, "driver")) as trial:
        with Load(trial.feed, trial.source, 0.3) as load:
            for number in range(kills(9)):
                if number % 3:
                    trial.die_at(_STEPS[(number - number // 3) % len(_STEPS)], random.randrange(1, 4))
                else:
                    with trial.stream() as running:
                        load.until(random.randrange(60, 300))
                        running.kill(**victims[number // 3 % 3])
                    trial.killed += 1
        told(capsys, target, "driver", trial.killed, trial.settle(load.sent))


@pytest.mark.promise("sinks.killed")
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", TARGETS.values(), ids=TARGETS)
def test_every_sink_outlives_kills_by_tasks(
    target: Target, kafka: LocalKafka, prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A third at steps between tasks and commit, a third of tasks' Pythons alone, a third of all at any time."""
    random = Random(6)
    with closing(Killed(target, kafka, prefix, tmp_path, "executors")) as trial:
        with Load(trial.feed, trial.source, 0.3) as load:
            for number in range(kills(9)):
                if number % 3 == 0:
                    trial.die_at(_TASK_STEPS[number // 3 % len(_TASK_STEPS)], random.randrange(1, 4))
                    continue
                with trial.stream() as running:
                    running.until(partial(has_workers, running))
                    load.until(random.randrange(100))
                    if number % 3 == 1:
                        trial.kill_tasks(running)
                    else:
                        running.kill()
                        trial.killed += 1
        told(capsys, target, "executors", trial.killed, trial.settle(load.sent))


def told(capsys: pytest.CaptureFixture[str], target: Target, execution: str, killed: int, changes: int) -> None:
    """Print how much was tried."""
    with capsys.disabled():
        kind = target.section["type"]
        sys.stdout.write(f"\n{kind}, {execution}: {killed} kills, {changes} changes, no difference\n")
