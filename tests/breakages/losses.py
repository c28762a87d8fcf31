"""Breakages of losses: of what is shown, until when, and of what a lost topic means."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Breakage, Needs, Red

FAULTS: Final = "integration/faults/test_losses.py"

BREAKAGES: Final = (
    Breakage(
        name="losses-forgotten-at-a-start",
        promise="a loss is shown until it is acknowledged, over restarts of the agent",
        file="connector/tailrace/agent/losses.py",
        old="        self._read(log.read_to_end())\n",
        new="        for _ in log.read_to_end():\n            pass\n",
        needs=Needs.NODE,
        session="losses",
        reds=(
            Red(
                FAULTS,
                "test_a_segment_deleted_while_no_agent_runs_is_shown_until_it_is_acknowledged",
                r"not in 60 s; exit code None",
            ),
        ),
    ),
)
