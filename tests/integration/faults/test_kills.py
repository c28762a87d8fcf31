"""kill -9 of the agent, under load: at every step of its loop, and at any time."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from tailrace.local import CassandraSettings, LocalCassandra, LocalKafka
from tests.integration.agents import AgentProcess
from tests.integration.dying_agent import Step
from tests.integration.faults.load import Load
from tests.integration.faults.trial import Trial, trial_on
from tests.integration.streams import kills
from tests.support.waiting import until

_IN_TRANSACTION = (Step.CHANGE, Step.HISTORY, Step.CHANGES, Step.OFFSETS)
"""What was produced before the death at these is in Kafka, for nobody to see."""


def die_at(trial: Trial, load: Load, step: Step, nth: int) -> None:
    """An agent that ends itself at a step; the load goes on, and alters a table where the step needs that."""
    there = trial.appended()
    if step is Step.HISTORY:
        nth = 1  # one alteration, one record
        with load.paused():
            trial.ddl(f"ALTER TABLE #.rows ADD {trial.unused_name()} int")
    with trial.dying(step, nth) as agent:
        assert agent.ended(90) == -signal.SIGKILL, f"{step}\n{agent.words()}"
    if step in _IN_TRANSACTION:
        assert trial.appended() > there, f"nothing was in Kafka {step}: this shows nothing"


def die_after(agent: AgentProcess, load: Load, statements: int) -> None:
    """An agent that is ended so many statements after its start, wherever it is then."""
    with agent:
        load.until(statements)
        agent.kill()


def until_released(trial: Trial) -> None:
    """Return in the very moment in which a segment has gone from cdc_raw, or after a while without one."""
    there = set(os.listdir(trial.cassandra.cdc_raw))
    with suppress(AssertionError):
        until(lambda: not there <= set(os.listdir(trial.cassandra.cdc_raw)), "a released segment", 10, every=0.0005)


@pytest.mark.spine
@pytest.mark.promise("agent.every-change", "agent.exactly-once", "agent.killed", "others.killed-streaming")
def test_at_every_step_of_the_loop_and_at_any_time(trial: Trial) -> None:
    """The load began before the first agent, which has segments to catch up on."""
    random, load = Random(1), trial.load(rate=250)
    trial.until_segments(2)
    for step in tuple(Step)[::2]:  # at all of them `test_sixty_times`, and in memory the unit tests
        die_at(trial, load, step, random.randrange(1, 3))
    die_after(trial.agent(), load, random.randrange(250, 625))
    load.end()
    with trial.agent() as agent:
        verdict = trial.settle(agent)
    assert verdict.changes > 1000, "too small a load shows nothing"


@pytest.mark.promise("agent.every-change", "agent.exactly-once", "agent.killed")
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_sixty_times(trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    """Half of them at a step, half at any time from the start of the process on."""
    random, load = Random(2), trial.load(seed=2, rate=60, bulk=30_000)
    steps = list(Step)
    trial.until_segments(4)
    for kill in range(kills(60) // 2):
        die_at(trial, load, steps[kill % len(steps)], random.randrange(1, 4))
        die_after(trial.agent(), load, random.randrange(300))
        with capsys.disabled():
            sys.stdout.write(f"\r{2 * (kill + 1)} kills, {load.sent} statements")
    load.end()
    with trial.agent() as agent:
        verdict = trial.settle(agent, 600)
    with capsys.disabled():
        sys.stdout.write(f"\nkill -9 of the agent: 60 kills, {load.sent} statements, {verdict}\n")


@pytest.mark.promise("agent.killed-catching-up", "others.killed-catching-up")
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_while_catching_up(trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    """Many segments were written while no agent ran; it is killed again and again until it is there."""
    with trial.agent() as agent:
        agent.until_ready()
        agent.kill()
    load = trial.load(seed=3, rate=2000)
    trial.until_segments(30, 300)
    load.end()
    agent = trial.agent()
    for kill in range(kills(10)):
        with agent:
            agent.until_ready()
            if kill % 2:
                agent.until(lambda: agent.count("changes") >= 50)
            else:
                until_released(trial)
            agent.kill()
    with agent:
        verdict = trial.settle(agent)
    with capsys.disabled():
        sys.stdout.write(f"\nkill -9 while catching up: 10 kills, {verdict}\n")


@pytest.mark.promise("agent.killed-in-large-segment", "others.killed-in-segment")
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_in_one_large_segment(
    kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of Cassandra's own size, 32 MiB: the agent is killed again and again inside of it."""
    settings = CassandraSettings(segment_mib=32)
    with (
        LocalCassandra(tmp_path / "cassandra", settings) as cassandra,
        trial_on(cassandra, kafka, prefix, keyspace_name, tmp_path) as trial,
    ):
        load = trial.load(seed=5, rate=400)
        agent = trial.agent()
        for _ in range(kills(10)):
            with agent:
                agent.until_ready()
                agent.until(lambda: agent.count("changes") >= 100)
                agent.kill()
        load.end()
        with agent:
            verdict = trial.settle(agent)
        segments = len(trial.links.paths())
    with capsys.disabled():
        sys.stdout.write(f"\nkill -9 in {segments} segments of 32 MiB: 10 kills, {verdict}\n")
