"""What is lost of a stream's topics, by its offsets and Kafka's."""

from __future__ import annotations

import pytest

from tailrace_common.kafka import TopicState
from tailrace_spark.job.losses import DELETED, RECREATED, TRIMMED, Loss, Span, find_losses, moved, without
from tailrace_spark.job.offsets import Plan

PLAN = Plan({("a", 0): 10, ("a", 1): 5, ("b", 0): 3}, {("a", 0): 14, ("a", 1): 5, ("b", 0): 3, ("new", 0): 2})
IDS = {"a": "1", "b": "2"}
A = TopicState("1", {0: 0, 1: 0}, {0: 20, 1: 5})
B = TopicState("2", {0: 0}, {0: 3})
NEW = TopicState("3", {0: 0}, {0: 2})
ALL = {"a": A, "b": B, "new": NEW}


def test_nothing_is_lost_of_what_is_there() -> None:
    assert find_losses(PLAN, IDS, ALL) == []


def test_of_a_deleted_topic_all_that_was_not_read() -> None:
    [loss] = find_losses(PLAN, IDS, {"b": B, "new": NEW})
    assert loss == Loss("a", DELETED, (Span(0, 10, 14), Span(1, 5, None)))
    assert str(loss) == "topic a was deleted; not read: partition 0 offsets 10 to 13, partition 1 from offset 5 on"
    assert loss.offsets == 4


@pytest.mark.parametrize(
    ("ids", "state"),
    [
        (IDS, TopicState("9", {0: 0, 1: 0}, {0: 99, 1: 99})),  # larger than the one before
        ({}, TopicState("9", {0: 0, 1: 0}, {0: 9, 1: 9})),  # of an id that nobody noted: shorter than what was read
    ],
)
def test_a_topic_of_the_same_name_is_another(ids: dict[str, str], state: TopicState) -> None:
    [loss] = find_losses(PLAN, ids, {**ALL, "a": state})
    assert (loss.topic, loss.why) == ("a", RECREATED)


def test_records_that_were_deleted_before_they_were_read() -> None:
    trimmed = {**ALL, "a": TopicState("1", {0: 12, 1: 5}, {0: 20, 1: 5}), "new": TopicState("3", {0: 1}, {0: 2})}
    assert find_losses(PLAN, IDS, trimmed) == [
        Loss("a", TRIMMED, (Span(0, 10, 12),)), Loss("new", TRIMMED, (Span(0, 0, 1),)),
    ]  # fmt: skip


def test_a_plan_without_a_topic_and_with_later_offsets() -> None:
    assert without(PLAN, {"a"}) == Plan({("b", 0): 3}, {("b", 0): 3, ("new", 0): 2})
    later = moved(PLAN, {("a", 0): 12, ("b", 0): 8})
    assert (later.start["a", 0], later.end["a", 0]) == (12, 14)
    assert (later.start["b", 0], later.end["b", 0]) == (8, 8)
