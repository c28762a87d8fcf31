"""A member of a shared reading, alone with its seat: what it writes, what it hands on, when it goes on alone."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import cast

import pytest
from pyspark.sql import SparkSession

from tailrace_common.settings import Settings
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.job.member import Member
from tailrace_spark.job.metrics import StreamMetrics
from tailrace_spark.job.offsets import PlannedBatch
from tailrace_spark.job.sharing import Handover, Seats, SharedPart
from tests.unit.spark.job.pieces import A, pieces_of
from tests.unit.spark.sinks.planned import Planned

OF_A = A[0]


def ran(
    earlier: Mapping[str, str], reading: Mapping[str, str]
) -> tuple[Planned, list[dict[KafkaPartition, int]], dict[str, str]]:
    """The sink of a member that was given records 3 to 5 and then closed, what it said to have written, its topics."""
    seats, sink, written = Seats(lambda: 0.0), Planned(), list[dict[KafkaPartition, int]]()
    seat = seats.join("orders", {A: 3})
    assert seat is not None
    seats.begin(0.0, 0.0, threading.Event())
    plan = PlannedBatch({A: 3}, {A: 6})
    seats.hand_out(SharedPart(plan, pieces_of(plan), last=True), seats.plan(plan))
    seats.close("no more")
    member = Member(
        cast(SparkSession, None), Settings(), sink, seat, stop=threading.Event(), metrics=StreamMetrics(),
        earlier=Handover(topic_ids=earlier), claim="1", read_back=lambda: None, topic_ids=lambda: reading,
        wrote=lambda offsets: written.append(dict(offsets)),
    )  # fmt: skip
    member.run()
    return sink, written, member.topic_ids


@pytest.mark.promise("subscription.losses")
def test_a_topic_that_was_first_met_in_the_reading_is_known_again() -> None:
    sink, offsets, topic_ids = ran({"other": "1"}, {OF_A: "7"})
    assert len(sink.commits) == 1
    assert offsets == [{A: 6}]
    assert topic_ids == {"other": "1", OF_A: "7"}


@pytest.mark.promise("subscription.losses")
def test_what_was_made_again_before_the_reading_is_not_read_on_at_the_offsets_of_the_old_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Which is left for the stream of its own to find, by the id that it had."""
    with caplog.at_level("INFO", "tailrace_spark"):
        sink, offsets, topic_ids = ran({OF_A: "6"}, {OF_A: "7"})
    assert (sink.commits, offsets) == ([], [])
    assert topic_ids == {OF_A: "6"}
    assert "orders goes on alone: made again since it read them: topic" in caplog.text
