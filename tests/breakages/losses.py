"""Breakages of losses: of what is shown, until when, and of what a lost topic means."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Needs, Red, breakage
from tests.breakages.mutations import constant, drop, replace

FAULTS: Final = "integration/faults/test_losses.py"

BREAKAGES: Final = {
    "losses-forgotten-at-a-start": breakage(
        "a loss is shown until it is acknowledged, over restarts of the agent",
        "tailrace.agent.notes:Losses.begin",
        replace("self._read(log.read_to_end())", "list(log.read_to_end())"),
        Red(
            FAULTS,
            "test_a_segment_deleted_while_no_agent_runs_is_shown_until_it_is_acknowledged",
            r"(?m)^> +agent\.until\(lambda: bool\(losses_of",
        ),
        session="losses",
    ),
    "a-deleted-record-is-a-new-host": breakage(
        "a host whose record was deleted from .offsets does not publish everything once more",
        "tailrace.publish.kafka.publisher:KafkaPublisher.start",
        constant("all(...)", False),
        Red(FAULTS, "test_a_deleted_offsets_topic_repeats_nothing", r"TimeoutExpired|AssertionError"),
        Red("integration/test_publisher.py", "test_a_host_whose_record_was_deleted_does_not_begin_again", "DID NOT"),
        needs=Needs.NODE,
    ),
    "restored-from-progress-alone": breakage(
        "a restored record has the position of the newest change in the tables' topics",
        "tailrace.cli.cluster.offsets:restore",
        drop("publisher.newest(progress.at)"),
        Red(FAULTS, "test_a_deleted_offsets_topic_repeats_nothing", r"\b[1-9]\d* doubled\b"),
        session="losses",
    ),
}
