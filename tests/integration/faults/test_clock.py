"""A wall clock that jumps by days, under load."""

from __future__ import annotations

import time

import pytest

from tests.integration import jumping_agent
from tests.integration.faults.trial import Trial, until_more
from tests.integration.jumping_agent import DAY


@pytest.mark.promise("agent.clock-jumps")
@pytest.mark.long
def test_a_clock_that_jumps(trial: Trial) -> None:
    """Nothing is other than under a right one, but the times at which changes were seen."""
    load = trial.load(rate=200)
    with trial.agent() as agent:  # the first generation has its time by a right one
        agent.until_ready()
        assert agent.stop() == 0
    with trial.agent("jumping", program=(jumping_agent.__file__,)) as agent:
        until_more(agent)
        agent.until(lambda: spread(trial) > DAY)
        states, jumps = set[tuple[object, object]](), set[int]()

        def looked() -> bool:
            """Over some jumps of every kind: there is one each second."""
            if status := agent.status():
                states.add((status["live"], status["ready"]))
                jumps.add(int(time.monotonic()))
            return len(jumps) > 9

        agent.until(looked)
        assert states == {(True, True)}
        assert agent.faults() == {}
        load.end()
        trial.settle(agent)


def spread(trial: Trial) -> float:
    """Seconds between the earliest and the latest time at which a row was seen."""
    seen = [record.change.source.seen for record in trial.records("rows") if record.change.source is not None]
    return (max(seen) - min(seen)) / 1000
