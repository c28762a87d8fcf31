"""Breakages of losses: of what is shown, until when, and of what a lost topic means."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Breakage, Needs, Red

PUBLISHER: Final = "connector/tailrace/publish/kafka/publisher.py"
PUBLISHING: Final = "integration/test_publisher.py"
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
                r"(?m)^> +agent\.until\(lambda: bool\(losses_of",
            ),
        ),
    ),
    Breakage(
        name="a-deleted-record-is-a-new-host",
        promise="a host whose record was deleted from .offsets does not publish everything once more",
        file=PUBLISHER,
        old="        if all(key != self._key for key, _ in records):\n",
        new="        if records is None:\n",
        needs=Needs.NODE,
        reds=(
            Red(FAULTS, "test_a_deleted_offsets_topic_repeats_nothing", r"TimeoutExpired|AssertionError"),
            Red(
                "integration/test_publisher.py", "test_a_host_whose_record_was_deleted_does_not_begin_again", "DID NOT"
            ),
        ),
    ),
    Breakage(
        name="restored-from-progress-alone",
        promise="a restored record has the position of the newest change in the tables' topics",
        file="connector/tailrace/cli/cluster/offsets_restore.py",
        old="max(progress.position, publisher.newest(progress.at) or Position(0, 0, 0))",
        new="max(progress.position, Position(0, 0, 0))",
        needs=Needs.NODE,
        session="losses",
        reds=(Red(FAULTS, "test_a_deleted_offsets_topic_repeats_nothing", r"\b[1-9]\d* doubled\b"),),
    ),
)
