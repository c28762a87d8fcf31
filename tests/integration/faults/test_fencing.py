"""Two agents for one node, under load."""

from __future__ import annotations

from tests.integration.faults.test_crashes import until_more
from tests.integration.faults.trial import Trial


def test_of_two_agents_for_one_node_the_older_is_fenced(trial: Trial) -> None:
    """It ends with exit code 5 and says why; the newer one goes on where it was, and nothing is published twice."""
    load = trial.load(rate=200)
    with trial.agent("older") as older:
        until_more(older)
        with trial.agent("newer") as newer:
            assert older.ended() == 5
            until_more(newer)
            load.end()
            trial.settle(newer)
    assert "another agent started" in older.words()
