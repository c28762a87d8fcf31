"""Files that tasks write: attempts beside each other, deaths before the manifest, another driver, what is left over."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyarrow import fs

from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.batch.task_batch import PartitionResult, TaskBatch
from tailrace_spark.sinks.files.compaction import Compaction
from tailrace_spark.sinks.files.dead_letters import ReplayableFilesOutlet
from tailrace_spark.sinks.files.reader import CommittedFiles
from tailrace_spark.sinks.files.settings import FilesSinkSettings
from tailrace_spark.sinks.files.sink import FilesSink
from tailrace_spark.sinks.files.task import FilesTask
from tailrace_spark.sinks.protocol import DriverOnlyError
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import PLAIN, Topic, changes_of, delivered_by
from tests.unit.spark.sinks.files.stores import StoredInTasks
from tests.unit.spark.sinks.in_tasks import STREAM, attempt, interrupted, shares_of

LOG = Log(PLAIN)


@pytest.fixture
def stored(tmp_path: Path) -> StoredInTasks:
    settings = FilesSinkSettings(path=str(tmp_path / "lake"))
    return StoredInTasks(settings, fs.LocalFileSystem(), str(tmp_path / "lake"), renames=True)


def sink_of(stored: StoredInTasks) -> FilesSink:
    """That of a driver of its own."""
    return FilesSink(ReplayableFilesOutlet(stored.store, stored.settings))


def planned(sink: FilesSink, number: int = 0) -> FilesTask:
    return sink.plan(_batch(number), [])


def _batch(number: int) -> TaskBatch:
    return TaskBatch(STREAM, number, {})


def written(task: FilesTask, *pieces: Piece) -> list[PartitionResult]:
    """What a copy of the task brings of each partition of the pieces."""
    results = [attempt(task, partition, share, unprepared=True) for partition, share in shares_of(pieces).items()]
    return [result for result in results if result is not None]


def rows(*numbers: int, topic: Topic, letters: int = 0) -> Piece:
    return topic.piece(*(LOG.insert((number,), (), number, v=f"{number}") for number in numbers), letters=letters)


@pytest.mark.promise("tasks.attempts")
def test_two_attempts_at_a_partition_come_out_as_one(stored: StoredInTasks) -> None:
    """A repeated task beside the one that Spark has given up, in the middle of its pieces."""
    sink, topic = sink_of(stored), Topic()
    first, second = rows(0, 3, 6, topic=topic), rows(9, 12, topic=topic)
    [partition] = shares_of([first, second])
    task = planned(sink)
    with interrupted(task, partition, first, then=second) as end:
        repeated = task.write(partition, [first, second])
        assert sink.commit(_batch(0), [repeated]) == Summary(5, 5)
        late = end()
    with pytest.raises(ServiceError, match="of an earlier plan"):
        sink.commit(_batch(0), [late])
    assert changes_of(stored.records(), PLAIN) == delivered_by(first, second)
    assert len(stored.records()) == 5


@pytest.mark.promise("tasks.attempts")
def test_nothing_is_seen_before_the_manifest_and_a_driver_that_dies_there_leaves_nothing(stored: StoredInTasks) -> None:
    sink, topic = sink_of(stored), Topic()
    piece = rows(*range(9), topic=topic, letters=1)
    results = written(planned(sink), piece)
    assert len(results) == 3
    assert (stored.records(), stored.dead_letters()) == ([], [])
    restarted = sink_of(stored)
    assert restarted.commit(_batch(0), written(planned(restarted), piece)) == Summary(9, 9, 1)
    with pytest.raises(SettingsError, match="another stream has begun to write here"):
        sink.commit(_batch(0), results)
    assert changes_of(stored.records(), PLAIN) == delivered_by(piece)
    assert len(stored.dead_letters()) == 1
    again = written(planned(restarted, 1), piece)
    assert restarted.commit(_batch(1), again) == Summary(changes=9)
    assert len(list(CommittedFiles(stored.store).commits())) == 1


def test_what_a_replay_commits_between_plan_and_commit_has_the_batch_come_again(stored: StoredInTasks) -> None:
    sink, topic = sink_of(stored), Topic()
    letters = rows(1, topic=topic, letters=1)
    sink.commit(_batch(0), written(planned(sink), letters))
    piece = rows(2, topic=topic)
    results = written(planned(sink, 1), piece)
    replaying = sink_of(stored)
    replaying.replay(replaying.dead_letters(None, 10), [])
    with pytest.raises(ServiceError, match="another writer came first"):
        sink.commit(_batch(1), results)
    assert sink.commit(_batch(1), written(planned(sink, 1), piece)).rows == 1
    assert changes_of(stored.records(), PLAIN) == delivered_by(letters, piece)


def test_dead_letters_of_several_tasks_are_one_file(stored: StoredInTasks, tmp_path: Path) -> None:
    sink, topic, other = sink_of(stored), Topic(), Topic("t.shop.other")
    pieces = [rows(topic=topic, letters=2), rows(topic=other, letters=1)]
    assert sink.commit(_batch(0), written(planned(sink), *pieces)) == Summary(dead_letters=3)
    assert len(stored.dead_letters()) == 3
    assert len(list((tmp_path / "lake/_tailrace/dead-letters").iterdir())) == 1


def test_a_directory_that_executors_do_not_share_is_the_drivers(stored: StoredInTasks, tmp_path: Path) -> None:
    sink, topic = sink_of(stored), Topic()
    task, piece = planned(sink), rows(1, topic=topic)
    (tmp_path / "lake/.tailrace-directory").write_text("another machine's")
    with pytest.raises(DriverOnlyError, match="which executors do not share"):
        written(task, piece)


def test_files_that_the_driver_does_not_see_are_not_committed(stored: StoredInTasks, tmp_path: Path) -> None:
    sink, topic = sink_of(stored), Topic()
    results = written(planned(sink), rows(1, topic=topic))
    for path in (tmp_path / "lake").rglob("*.parquet"):
        path.unlink()
    with pytest.raises(SettingsError, match=r"was written by an executor .*stream\.execution"):
        sink.commit(_batch(0), results)


def test_files_of_attempts_that_do_not_count_are_removed_once_their_commit_is_there(stored: StoredInTasks) -> None:
    sink, topic, now = sink_of(stored), Topic(), 1_000_000.0
    first, second = rows(1, topic=topic), rows(2, topic=topic)

    def removed() -> int:
        for path in stored.data():
            os.utime(f"{stored.settings.path}/{path}", (now - 3 * 3600, now - 3 * 3600))
        return Compaction(stored.store, 1, lambda: now).run(hours=2).removed

    task = planned(sink)
    written(task, first)
    results = written(task, first)
    assert removed() == 0  # any of these may be committed
    sink.commit(_batch(0), results)
    assert removed() == 1
    written(planned(sink, 1), second)
    assert removed() == 0
    assert changes_of(stored.records(), PLAIN) == delivered_by(first)
