"""Where partitions end, asked by one client for as long as a process lives."""

from __future__ import annotations

from pathlib import Path

from tailrace.local import KafkaSettings, LocalKafka
from tailrace_common.kafka.topics import PartitionEnds, TopicMaker
from tailrace_schemas.errors import ServiceError
from tests.support.waiting import until


def test_it_answers_again_after_its_broker_restarted(tmp_path: Path) -> None:
    """Three times: the broker refuses what a client knew of leaders before (FENCED_LEADER_EPOCH)."""
    with LocalKafka(tmp_path / "kafka", KafkaSettings(heap_mib=256)) as kafka:
        config = {"bootstrap.servers": kafka.bootstrap}
        TopicMaker(config).ensure("t", 1, {})
        ends = PartitionEnds(config)

        def answers() -> bool:
            try:
                return ends.of([("t", 0)]) == {("t", 0): 0}
            except ServiceError:
                return False

        until(answers, "the end of the topic")
        for _ in range(3):
            kafka.kill()
            kafka.start()
            until(answers, "the same end after a crash")
