"""Histories that tasks write, in each lake: attempts beside each other, deaths before the commit, what refuses."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.batch.delivery import CommitMessage, MicroBatch, Piece, Summary
from tailrace_spark.sinks.changelog.sink import ChangeLogSink
from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
from tailrace_spark.sinks.lake.history import HistoryWriter, LakeHistory, history_sink
from tailrace_spark.sinks.lake.staging import LakePlan
from tailrace_spark.sinks.protocol import AGAIN, HereOnlyError, write_here
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import PLAIN, WIDE, Topic, changes_of, deliver, delivered_by
from tests.unit.spark.sinks.delta.stores import DeltaInTasks
from tests.unit.spark.sinks.iceberg.stores import IcebergInTasks
from tests.unit.spark.sinks.in_tasks import FENCING, STREAM, attempt, interrupted, planned_by, shares_of

LOG = Log(PLAIN)

Stored = DeltaInTasks | IcebergInTasks


@pytest.fixture(params=["delta", "iceberg"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Stored:
    path = str(tmp_path / "lake")
    if request.param == "delta":
        return DeltaInTasks(DeltaSinkSettings(path=path))
    return IcebergInTasks(IcebergSinkSettings(path=path))


def sink_of(stored: Stored) -> ChangeLogSink:
    """That of a driver of its own."""
    return history_sink(LakeHistory(stored.opened(), letters=stored.letters))


def planned(sink: ChangeLogSink, number: int = 0, *, of: Sequence[Any] = (PLAIN,)) -> HistoryWriter:
    return planned_by(HistoryWriter, sink, _batch(number), [(place, table) for place, table in enumerate(of)])


def _batch(number: int) -> MicroBatch:
    return MicroBatch(STREAM, number, {})


def written(task: HistoryWriter, *pieces: Piece) -> list[CommitMessage]:
    """What a copy of the task brings of each partition of the pieces."""
    return [attempt(task, partition, share) for partition, share in shares_of(pieces).items()]


def rows(*numbers: int, topic: Topic) -> Piece:
    return topic.piece(*(LOG.insert((number,), (), number, v=f"{number}") for number in numbers))


@pytest.mark.slow
@pytest.mark.promise("tasks.attempts")
def test_two_attempts_at_a_partition_come_out_as_one(stored: Stored) -> None:
    """A repeated task beside the one that Spark has given up, in the middle of its pieces."""
    sink, topic = sink_of(stored), Topic()
    first, second = rows(0, 3, 6, topic=topic), rows(9, 12, topic=topic)
    [partition] = shares_of([first, second])
    task = planned(sink)
    with interrupted(task, partition, first, then=second) as end:
        repeated = task.write(partition, [first, second])
        assert sink.batch_write(_batch(0)).commit([repeated]) == Summary(5, 5)
        late = end()
    assert changes_of(stored.records(), PLAIN) == delivered_by(first, second)
    with pytest.raises(ServiceError, match="another writer came first"):
        sink.batch_write(_batch(0)).commit([late])
    assert len(stored.records()) == 5


@pytest.mark.slow
@pytest.mark.promise("tasks.attempts")
def test_nothing_is_seen_before_the_commit_and_a_driver_that_dies_there_leaves_nothing(stored: Stored) -> None:
    sink, topic = sink_of(stored), Topic()
    piece = topic.piece(*(LOG.insert((number,), (), 1, v="x") for number in range(9)), letters=1)
    results = written(planned(sink), piece)
    assert len(results) == 3
    assert stored.records() == []
    restarted = sink_of(stored)
    task = planned(restarted)
    assert restarted.batch_write(_batch(0)).commit(written(task, piece)) == Summary(9, 9, 1)
    with pytest.raises(ServiceError, match="another writer came first"):
        sink.batch_write(_batch(0)).commit(results)
    assert changes_of(stored.records(), PLAIN) == delivered_by(piece)
    assert len(stored.letters.all) == 1
    assert sum(result.summary.rows for result in written(planned(restarted, 1), piece)) == 0


@pytest.mark.promise("sinks.dead-letters")
def test_what_is_written_again_is_there_once(stored: Stored) -> None:
    """Behind what tasks have written, and before what comes; a replay that was cut off writes it once more."""
    sink, topic = sink_of(stored), Topic()
    first, second = rows(0, 3, 6, topic=topic), rows(9, 12, topic=topic)
    aside = Piece(first.changes[1:2])
    sink.batch_write(_batch(0)).commit(written(planned(sink), Piece((first.changes[0], first.changes[2]))))
    for _ in range(2):
        assert write_here(sink_of(stored), [aside], AGAIN) == Summary(1, 0 if _ else 1)
    sink.batch_write(_batch(1)).commit(written(planned(sink, 1), second))
    assert changes_of(stored.records(), PLAIN) == delivered_by(first, second)
    assert len(stored.records()) == 5


@pytest.mark.slow
def test_what_the_plan_has_not_made_ready_is_the_drivers(stored: Stored) -> None:
    """A table, and a column that it lacks, which a task does not add."""
    sink, topic = sink_of(stored), Topic()
    piece, wider = rows(1, topic=topic), topic.piece(Log(WIDE).insert((1,), (), 2, x=1.5))
    with pytest.raises(HereOnlyError, match=r"shop\.plain"):
        written(planned(sink, of=()), piece)
    task = planned(sink)
    with pytest.raises(HereOnlyError, match=r"shop\.plain"):
        written(task, wider)
    sink.batch_write(_batch(0)).commit(written(planned(sink, of=(WIDE,)), piece, wider))
    assert changes_of(stored.records(), WIDE).keys() == delivered_by(piece, wider).keys()


@pytest.mark.slow
def test_the_driver_goes_on_behind_tasks_and_tasks_behind_the_driver(stored: Stored) -> None:
    sink, topic = sink_of(stored), Topic()
    pieces = [rows(number, number + 1, number + 2, topic=topic) for number in range(0, 12, 3)]
    for number, piece in enumerate(pieces):
        if number % 2:
            assert write_here(sink, [*pieces[:number], piece], FENCING).rows == 3
        else:
            task = planned(sink, number)
            assert sink.batch_write(_batch(number)).commit(written(task, *pieces[:number], piece)).rows == 3
    assert changes_of(stored.records(), PLAIN) == delivered_by(*pieces)
    assert len(stored.records()) == 12


def test_files_that_the_driver_does_not_see_are_not_committed(stored: Stored, tmp_path: Path) -> None:
    """As of executors that write into directories of their own machines."""
    sink, topic = sink_of(stored), Topic()
    results = written(planned(sink), rows(1, topic=topic))
    for path in (tmp_path / "lake").rglob("*.parquet"):
        if "plain" in str(path):
            path.unlink()
    with pytest.raises(SettingsError, match=r"was written by an executor .*stream\.execution"):
        sink.batch_write(_batch(0)).commit(results)


@pytest.mark.slow
def test_a_directory_that_executors_do_not_share_is_the_drivers(stored: Stored, tmp_path: Path) -> None:
    sink, topic = sink_of(stored), Topic()
    task, piece = planned(sink), rows(1, topic=topic)
    mark = tmp_path / "lake/.tailrace-directory"
    for elsewhere in ("another machine's", None):
        mark.unlink()
        if elsewhere:
            mark.write_text(elsewhere)
        with pytest.raises(HereOnlyError, match="which executors do not share"):
            written(task, piece)
    assert written(planned(sink), piece)


def test_a_tasks_words_have_no_secret() -> None:
    section = {"path": "s3://bucket/x", "access_key": "me", "secret_key": "sesame"}
    store = DeltaInTasks(DeltaSinkSettings.model_validate(section)).store
    task = HistoryWriter(LakePlan(store, None, "plan"), {})
    assert "sesame" not in repr(task) + str(task)
    assert b"sesame" in pickle.dumps(task)  # it travels inside Spark's own connections


def test_a_delta_table_whose_rows_delta_rs_checks_is_the_drivers(tmp_path: Path) -> None:
    stored, topic = DeltaInTasks(DeltaSinkSettings(path=str(tmp_path))), Topic()
    deliver(stored, rows(1, topic=topic))
    table = stored.table("shop.plain")
    assert table is not None
    table.alter.add_constraint({"no_deletes": "op <> 'delete'"})
    sink, second = sink_of(stored), rows(4, topic=topic)
    with pytest.raises(HereOnlyError, match=r"shop\.plain/? has delta\.constraints\.no_deletes"):
        written(planned(sink), second)
    assert write_here(sink, [second], FENCING).rows == 1
