"""Offsets of micro-batches in the files of Spark's checkpoint."""

from __future__ import annotations

import pytest

from tailrace_common.kafka import TopicState
from tailrace_spark.job.offsets import (
    DELETED,
    RECREATED,
    SHORTER,
    TRIMMED,
    Loss,
    PlannedBatch,
    Span,
    batch_offsets,
    find_losses,
    first_offsets,
    moved,
    without,
)

ABOUT = '{"batchWatermarkMs":0,"batchTimestampMs":1795405126708,"conf":{}}'
PLAN = PlannedBatch({("a", 0): 10, ("a", 1): 5, ("b", 0): 3}, {("a", 0): 14, ("a", 1): 5, ("b", 0): 3, ("new", 0): 2})
IDS = {"a": "1", "b": "2"}
A = TopicState("1", {0: 0, 1: 0}, {0: 20, 1: 5})
B = TopicState("2", {0: 0}, {0: 3})
NEW = TopicState("3", {0: 0}, {0: 2})
ALL = {"a": A, "b": B, "new": NEW}


def test_offsets_of_a_batch() -> None:
    text = f'v1\n{ABOUT}\n{{"p.shop.plain":{{"0":583,"1":641}},"p.shop.other":{{"0":2}}}}'
    assert batch_offsets(text) == {("p.shop.plain", 0): 583, ("p.shop.plain", 1): 641, ("p.shop.other", 0): 2}


def test_offsets_before_the_first_batch() -> None:
    assert first_offsets('\0v1\n{"p.shop.plain":{"0":5}}') == {("p.shop.plain", 0): 5}


@pytest.mark.parametrize("text", ["", "v2\n{}\n{}", f"v1\n{ABOUT}", f"v1\n{ABOUT}\n{{}}\n{{}}"])
def test_files_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="form"):
        batch_offsets(text)


def test_first_offsets_of_another_form_are_refused() -> None:
    with pytest.raises(ValueError, match="form"):
        first_offsets("\0v2\n{}")


def test_a_plan_counts_new_partitions_from_their_beginning_and_no_partition_twice() -> None:
    start = {("a", 0): 10, ("a", 1): 5, ("gone", 0): 7}
    assert PlannedBatch(start, {("a", 0): 14, ("a", 1): 2, ("new", 0): 3}).size == 4 + 3


@pytest.mark.parametrize("offsets", ["[]", '{"a":[1]}', '{"a":{"0":null}}', '{"a":{"0":"x"}}', "not JSON"])
def test_offsets_of_another_form_are_refused(offsets: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        batch_offsets(f"v1\n{ABOUT}\n{offsets}")


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


@pytest.mark.parametrize("ends", [{0: 9, 1: 5}, {0: 13, 1: 5}], ids=["before the batch", "in it"])
def test_a_topic_that_has_less_than_was_read_of_it_has_other_records(ends: dict[int, int]) -> None:
    """As from a backup of Kafka's disks, or with an unclean leader: its id is the same."""
    [loss] = find_losses(PLAN, IDS, {**ALL, "a": TopicState("1", {0: 0, 1: 0}, ends)})
    assert (loss.topic, loss.why) == ("a", SHORTER)


def test_records_that_were_deleted_before_they_were_read() -> None:
    trimmed = {**ALL, "a": TopicState("1", {0: 12, 1: 5}, {0: 20, 1: 5}), "new": TopicState("3", {0: 1}, {0: 2})}
    assert find_losses(PLAN, IDS, trimmed) == [
        Loss("a", TRIMMED, (Span(0, 10, 12),)), Loss("new", TRIMMED, (Span(0, 0, 1),)),
    ]  # fmt: skip


def test_a_plan_without_a_topic_and_with_later_offsets() -> None:
    assert without(PLAN, {"a"}) == PlannedBatch({("b", 0): 3}, {("b", 0): 3, ("new", 0): 2})
    later = moved(PLAN, {("a", 0): 12, ("b", 0): 8})
    assert (later.start["a", 0], later.end["a", 0]) == (12, 14)
    assert (later.start["b", 0], later.end["b", 0]) == (8, 8)
