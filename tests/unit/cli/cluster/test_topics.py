"""The plan of topics, and what copies of them mean."""

from __future__ import annotations

import pytest

from tailrace.cli.checks.kafka import judge_copies
from tailrace.cli.cluster.topics import command_lines, plan_rows
from tailrace_common.settings import TopicSettings
from tailrace_schemas.topics import Internal

OPTIONS = TopicSettings(prefix="p", partitions=6)
NEEDED = {OPTIONS.internal_plan(Internal.OFFSETS): "our offsets", OPTIONS.table_plan("p.shop.orders"): "shop.orders"}


def test_a_row_says_what_a_topic_needs_and_has() -> None:
    wrong = ["topic p.offsets has cleanup.policy=delete; it needs compact", "topic p.offsets.x has ..."]
    offsets, orders = plan_rows(NEEDED, {"p.offsets"}, wrong, 3)
    assert offsets["state"] == "topic p.offsets has cleanup.policy=delete; it needs compact"
    assert orders == {
        "topic": "p.shop.orders",
        "for": "shop.orders",
        "partitions": 6,
        "replication_factor": 3,
        "settings": {"cleanup.policy": "delete", "max.message.bytes": "16777216", "min.insync.replicas": "2"},
        "state": "missing",
    }
    assert [row["state"] for row in plan_rows(NEEDED, {"p.offsets", "p.shop.orders"}, (), 3)] == ["there", "there"]


def test_commands_can_be_pasted() -> None:
    """With Kafka's own tool, one line each."""
    (line,) = command_lines([OPTIONS.table_plan("p.shop.orders")], "a:9092,b:9092", 1)
    assert line == (
        "kafka-topics.sh --bootstrap-server a:9092,b:9092 --create --if-not-exists --topic p.shop.orders --partitions 6"
        " --replication-factor 1 --config cleanup.policy=delete --config max.message.bytes=16777216"
        " --config min.insync.replicas=1"
    )


@pytest.mark.parametrize(
    ("copies", "in_sync", "ok", "words"),
    [
        (3, 2, True, ""),
        (1, 1, True, "fewer than three copies"),
        (2, 2, True, "one broker that is down stops t"),
        (3, 3, True, "one broker that is down stops t"),
        (3, 1, True, "raise min.insync.replicas"),
        (1, 2, False, "lower min.insync.replicas"),
    ],
)
def test_what_copies_mean(copies: int, in_sync: int, ok: bool, words: str) -> None:
    found = judge_copies({"t": copies}, {"t": in_sync})
    assert found.ok is ok
    assert words in found.advice
    assert bool(found.advice) is bool(words)
