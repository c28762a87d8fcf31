"""A topic that was made again under a stream, which is killed at any step while it goes past that."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
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


def watch_of(disk: Disk, topic_id: str, *, stops: bool) -> TopicWatch:
    def of(topics: Collection[str]) -> dict[str, TopicState]:
        return {topic: TopicState(topic_id, {0: 0}, {0: 20}) for topic in topics}

    states: Any = SimpleNamespace(of=of, ids=lambda topics: dict.fromkeys(topics, topic_id))
    files: Any = disk
    return TopicWatch(
        files, files, states, StreamMetrics(), "checkpoint", stops=stops, wait=lambda _: None, earlier=Handover()
    )


def killed(disk: Disk, writes: int, *, stops: bool) -> TopicWatch:
    """What a stream finds that was killed behind so many writes about its topic, the only one, which it has read."""
    watch_of(disk, "1", stops=stops).check(READ)
    disk.writes = writes
    with suppress(Killed, DataLossError):
        watch_of(disk, "2", stops=stops).at_start(ends=False)
    disk.writes = 100
    watch = watch_of(disk, "2", stops=stops)
    with suppress(DataLossError):
        watch.at_start(ends=False)
    assert PARTITION not in {*disk.batch.start, *disk.batch.end}
    return watch


@pytest.mark.promise("sinks.read-again")
@pytest.mark.parametrize("writes", range(3))
def test_a_topic_that_was_made_again_is_read_from_its_beginning_wherever_the_stream_is_killed(writes: int) -> None:
    disk = Disk()
    watch = killed(disk, writes, stops=False)
    disk.batch = AGAIN
    try:
        watch.check(AGAIN)
    except ChangedTopicsError as error:
        watch.recover(error, error, ends=False)
        watch.check(AGAIN)
    assert watch.readings == {"a": "2"}


@pytest.mark.promise("stream.lost-topics")
@pytest.mark.parametrize("writes", range(3))
def test_a_table_that_a_loss_stops_is_stopped_wherever_the_stream_is_killed(writes: int) -> None:
    assert list(killed(Disk(), writes, stops=True).stopped) == ["a"]
