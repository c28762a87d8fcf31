"""Files that tasks write: attempts beside each other, late ones, another driver."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tailrace_schemas.errors import SettingsError
from tailrace_spark.batch.delivery import CommitMessage, MicroBatch, Piece, Summary
from tailrace_spark.sinks.files.outlet import FilesSink, FilesWriter
from tailrace_spark.sinks.protocol import HereOnlyError, write_here
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import PLAIN, Topic, changes_of, deliver, delivered_by
from tests.unit.spark.sinks.files.stores import Stored, StoredInTasks, local
from tests.unit.spark.sinks.in_tasks import FENCING, STREAM, attempt, interrupted, planned_by, shares_of

LOG = Log(PLAIN)


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return local(tmp_path / "lake", StoredInTasks)


def sink_of(stored: Stored) -> FilesSink:
    """That of a driver of its own."""
    return FilesSink(stored.outlet())


def planned(sink: FilesSink, *pieces: Piece) -> FilesWriter:
    return planned_by(FilesWriter, sink, _batch(*pieces))


def _batch(*pieces: Piece) -> MicroBatch:
    ends = {
        partition: 1 + max(place[2] for place in delivered_by(*share)) for partition, share in shares_of(pieces).items()
    }
    return MicroBatch(STREAM, 0, ends)


def written(task: FilesWriter, *pieces: Piece) -> list[CommitMessage]:
    """What a copy of the task brings of each partition of the pieces."""
    return [attempt(task, partition, share) for partition, share in shares_of(pieces).items()]


def rows(*numbers: int, topic: Topic) -> Piece:
    return topic.piece(*(LOG.insert((number,), (), number, v=f"{number}") for number in numbers))


@pytest.mark.promise("tasks.attempts")
def test_two_attempts_at_a_partition_come_out_as_one(stored: Stored) -> None:
    """A repeated task beside the one that Spark has given up, in the middle of its pieces; the batch is redelivered."""
    sink, topic = sink_of(stored), Topic()
    first, second = rows(0, 3, 6, topic=topic), rows(9, 12, topic=topic)
    [partition] = shares_of([first, second])
    for _ in range(2):
        task = planned(sink, first, second)
        with interrupted(task, partition, first, then=second) as end:
            repeated = task.write(partition, [first, second])
            assert repeated.summary == Summary(5, 5)
            before = stored.data()
            assert end() == repeated
        assert stored.data() == before
        assert changes_of(stored.records(), PLAIN) == delivered_by(first, second)
        assert len(stored.records()) == 5


@pytest.mark.promise("tasks.attempts")
@pytest.mark.parametrize("by", ["another driver", "a later plan", "the driver itself"])
def test_a_late_task_places_and_removes_nothing(stored: Stored, by: str) -> None:
    """It began before the batch came again, with more behind it."""
    sink, topic = sink_of(stored), Topic()
    first, second, more = (rows(0, 3, topic=topic) for _ in range(3))
    [partition] = shares_of([first])
    assert len(written(planned(sink, first, second), first)) == 1  # and it is not finished
    with interrupted(planned(sink, first, second), partition, first, then=second) as end:
        if by == "another driver":
            deliver(stored, first, second, more)
        elif by == "the driver itself":
            write_here(sink, [first, second, more], FENCING)
        else:
            written(planned(sink, first, second, more), first, second, more)
        with pytest.raises(SettingsError, match="another stream has begun to write here"):
            end()
    assert changes_of(stored.records(), PLAIN) == delivered_by(first, second, more)
    assert len(stored.data()) == 1


def test_a_directory_that_executors_do_not_share_is_the_drivers(stored: Stored, tmp_path: Path) -> None:
    sink, topic = sink_of(stored), Topic()
    piece = rows(1, topic=topic)
    task = planned(sink, piece)
    shutil.rmtree(tmp_path / "lake")
    with pytest.raises(HereOnlyError, match="which executors do not share"):
        written(task, piece)
