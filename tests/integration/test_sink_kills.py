"""kill -9 of `tailrace stream` and of its Java, under load, into every kind of sink: nothing is lost or distorted."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Final

import pytest

from tailrace.local import LocalKafka
from tests.held import Record, hold
from tests.integration.dying_stream import Step
from tests.integration.killed import Killed
from tests.integration.streams import has_workers, kills
from tests.integration.targets import POSTGRESQL, TARGETS, Target
from tests.integration.ways import Ground, Way

_STEPS: Final = (Step.NOTING, Step.NOTED, Step.READ, Step.WRITING, Step.COMMITTED)
_SQL_STEPS: Final = (*_STEPS, Step.MERGED, Step.SWEEPING, Step.SWEPT)
_BY_THE_DRIVER: Final = {
    "delta, current": (TARGETS["delta, current"], _STEPS),
    "kafka": (TARGETS["kafka"], _STEPS),
    "postgresql": (POSTGRESQL, _SQL_STEPS),
}
"""A sink that writes files and commits them, two that write in a transaction; tasks write all of them."""
_BY_TASKS: Final = {**TARGETS, "postgresql": POSTGRESQL}
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


@pytest.mark.promise("sinks.killed")
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("way", "steps"), _BY_THE_DRIVER.values(), ids=_BY_THE_DRIVER)
def test_sinks_that_the_driver_writes_outlive_kills(
    target: Target,
    steps: Sequence[Step],
    kafka: LocalKafka,
    prefix: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two thirds at steps, a third at any time: both processes, Python alone, or Java alone."""
    random = Random(5)
    victims: tuple[dict[str, bool], ...] = ({}, {"java": False}, {"python": False})
    with closing(Killed(target, kafka, prefix, tmp_path, "driver")) as trial:
        with trial.load(0.3) as load:
            trial.die_at(Step.OWNING, 1)  # a checkpoint is only owned once
            for number in range(kills(len(steps) * 3 // 2 + 1)):
                if number % 3:
                    trial.die_at(steps[(number - number // 3) % len(steps)], random.randrange(1, 4))
                else:
                    with trial.stream() as running:
                        load.until(random.randrange(60, 300))
                        trial.kill(running, **victims[number // 3 % 3])
        told(capsys, target, "driver", trial.killed, trial.settle(load.sent))


@pytest.mark.promise("sinks.killed")
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("way", "step"), list(zip(_BY_TASKS.values(), cycle(_TASK_STEPS), strict=False)), ids=list(_BY_TASKS)
)
def test_every_sink_outlives_kills_by_tasks(
    target: Target, step: Step, kafka: LocalKafka, prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At a step between tasks and commit, which others have at other sinks; tasks' Pythons alone; all at any time."""
    random = Random(6)
    with closing(Killed(target, kafka, prefix, tmp_path, "executors")) as trial:
        with trial.load(0.3) as load:
            for number in range(kills(3)):
                if number % 3 == 0:
                    trial.die_at(step, random.randrange(1, 4))
                    continue
                with trial.stream() as running:
                    running.until(partial(has_workers, running))
                    load.until(random.randrange(100))
                    if number % 3 == 1:
                        trial.kill_tasks(running)
                    else:
                        trial.kill(running)
        told(capsys, target, "executors", trial.killed, trial.settle(load.sent))


def told(capsys: pytest.CaptureFixture[str], target: Target, execution: str, killed: int, changes: int) -> None:
    """Print how much was tried."""
    with capsys.disabled():
        kind = target.section.get("type", "sql")
        sys.stdout.write(f"\n{kind}, {execution}: {killed} kills, {changes} changes, no difference\n")
