"""A topic that is made again, or restored, under a stream, which is killed or handed over while it goes past that."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace_common.kafka import TopicState
from tailrace_schemas.errors import DataLossError
from tailrace_spark.job.metrics import StreamMetrics
from tailrace_spark.job.offsets import PlannedBatch
from tailrace_spark.job.sharing import Handover
from tailrace_spark.job.topic_watch import ChangedTopicsError, TopicWatch

PARTITION = ("a", 0)
READ = PlannedBatch({PARTITION: 10}, {PARTITION: 14})
AGAIN = PlannedBatch({}, {PARTITION: 20})
"""As Spark plans a topic that it has not read."""
NOTHING = Handover()
FIRST, SECOND = (TopicState(name, {0: 0}, {0: 20}) for name in "12")
RESTORED = TopicState("1", {0: 0}, {0: 5})
"""The first one, as it was before the last records came."""


class Killed(Exception):
    """The stream is killed before a step."""


class Disk:
    """A checkpoint on which so many more writes are made."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.batch = READ
        self.writes = 100

    def _step(self) -> None:
        if not self.writes:
            raise Killed
        self.writes -= 1

    def read(self, name: str) -> str | None:
        return self.texts.get(name)

    def write(self, name: str, text: str) -> None:
        self._step()
        self.texts[name] = text

    def pending(self) -> tuple[int, PlannedBatch]:
        return 3, self.batch

    def replace(self, batch: int, plan: PlannedBatch) -> None:
        del batch
        self._step()
        self.batch = plan


def watch_of(disk: Disk, state: TopicState | None, *, stops: bool, earlier: Handover = NOTHING) -> TopicWatch:
    """With a topic as it is in Kafka; None: it is deleted."""

    def of(topics: Collection[str]) -> dict[str, TopicState]:
        return {} if state is None else dict.fromkeys(topics, state)

    def ids(topics: Collection[str]) -> dict[str, str]:
        return {topic: described.id for topic, described in of(topics).items()}

    states: Any = SimpleNamespace(of=of, ids=ids)
    files: Any = disk
    return TopicWatch(
        files, files, states, StreamMetrics(), "checkpoint", stops=stops, wait=lambda _: None, earlier=earlier
    )


def read_again(disk: Disk, watch: TopicWatch) -> Mapping[str, str]:
    """The readings of a stream that takes up a batch of the topic from its beginning."""
    disk.batch = AGAIN
    try:
        watch.check(AGAIN)
    except ChangedTopicsError as error:
        watch.recover(error, error, ends=False)
        watch.check(AGAIN)
    return watch.readings


def is_new(reading: str, state: TopicState) -> bool:
    """Whether a sink can have nothing of it."""
    return reading == state.id if state is SECOND else reading.startswith(f"{state.id}.")


def killed(disk: Disk, writes: int, state: TopicState, *, stops: bool) -> TopicWatch:
    """What a stream finds that was killed behind so many writes about its topic, the only one, which it has read."""
    watch_of(disk, FIRST, stops=stops).check(READ)
    disk.writes = writes
    with suppress(Killed, DataLossError):
        watch_of(disk, state, stops=stops).at_start(ends=False)
    disk.writes = 100
    watch = watch_of(disk, state, stops=stops)
    with suppress(DataLossError):
        watch.at_start(ends=False)
    assert PARTITION not in {*disk.batch.start, *disk.batch.end}
    return watch


@pytest.mark.promise("sinks.read-again")
@pytest.mark.parametrize("writes", range(3))
@pytest.mark.parametrize("state", [SECOND, RESTORED], ids=["made again", "restored"])
def test_a_topic_of_other_records_is_read_from_its_beginning_wherever_the_stream_is_killed(
    state: TopicState, writes: int
) -> None:
    disk = Disk()
    [reading] = read_again(disk, killed(disk, writes, state, stops=False)).values()
    assert is_new(reading, state)


@pytest.mark.promise("sinks.read-again")
@pytest.mark.parametrize("state", [SECOND, RESTORED], ids=["made again", "restored"])
def test_a_topic_of_other_records_is_another_reading_once_it_may_be_read_on(state: TopicState) -> None:
    disk = Disk()
    killed(disk, 0, state, stops=True)
    watch = watch_of(disk, replace(state, ends={0: 99}), stops=False)
    watch.at_start(ends=False)
    assert PARTITION not in {*disk.batch.start, *disk.batch.end}
    assert watch.stopped == {}
    [reading] = read_again(disk, watch).values()
    assert is_new(reading, state)


@pytest.mark.promise("sinks.read-again")
def test_a_topic_that_loses_its_end_again_is_a_third_reading() -> None:
    """Kafka's id stays the same, and what a sink has of the second reading is not of the third."""
    disk = Disk()
    [second] = read_again(disk, killed(disk, 0, RESTORED, stops=False)).values()
    disk.batch = READ
    watch = watch_of(disk, RESTORED, stops=False)
    watch.at_start(ends=False)
    [third] = read_again(disk, watch).values()
    assert is_new(third, RESTORED)
    assert third != second


@pytest.mark.promise("sinks.read-again")
@pytest.mark.parametrize("is_handed_over", [False, True])
def test_a_topic_that_was_deleted_and_then_made_again_is_another_reading(is_handed_over: bool) -> None:
    """Also where another stream goes on, as a subscription's next owner does, by the ids that it is given."""
    disk = Disk()
    watch_of(disk, FIRST, stops=False).check(READ)
    watch = watch_of(disk, None, stops=False)
    watch.at_start(ends=False)
    if is_handed_over:
        disk = Disk()
    earlier = Handover(watch.ids, None, watch.readings) if is_handed_over else NOTHING
    assert read_again(disk, watch_of(disk, SECOND, stops=False, earlier=earlier)) == {"a": "2"}


@pytest.mark.promise("stream.lost-topics")
@pytest.mark.parametrize("writes", range(3))
def test_a_table_that_a_loss_stops_is_stopped_wherever_the_stream_is_killed(writes: int) -> None:
    assert list(killed(Disk(), writes, SECOND, stops=True).stopped) == ["a"]
