"""Current tables that tasks write, in each lake: whose files they replace, attempts, deaths, the driver's share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tailrace_schemas.change import Change
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_schemas.tokens import partition, token
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import CommitMessage, MicroBatch, Piece, Summary
from tailrace_spark.sinks.lake.current import CurrentWriter, LakeCurrent
from tailrace_spark.sinks.lake.fast_rows import bucket_of
from tailrace_spark.sinks.lake.staging import Staged
from tailrace_spark.sinks.lake.state import StateTable
from tailrace_spark.sinks.protocol import HereOnlyError, write_here
from tests.support.shop import PLAIN, WIDER
from tests.unit.spark.cassandra import Log, truncate
from tests.unit.spark.sinks.contract import piece
from tests.unit.spark.sinks.delta.stores import FollowedDelta
from tests.unit.spark.sinks.iceberg.stores import FollowedIceberg
from tests.unit.spark.sinks.in_tasks import STREAM, attempt, interrupted, planned_by
from tests.unit.spark.sinks.lake.followed import KINDS, made_at
from tests.unit.spark.sinks.merging_contract import selected, write

TOPIC = "t.shop.plain"
PARTITIONS = 3
LOG = Log(PLAIN)
KEYS = range(24)

Followed = FollowedDelta | FollowedIceberg


@pytest.fixture(params=KINDS)
def followed(request: pytest.FixtureRequest, tmp_path: Path) -> Followed:
    return made_at(request.param, tmp_path / "lake", buckets=5)


def sink_of(followed: Followed, dies_after: int | None = None) -> LakeCurrent:
    """That of a driver of its own."""
    return LakeCurrent(followed.opened(dies_after), 5, clock=lambda: 0)


def batch(partitions: int = PARTITIONS) -> MicroBatch:
    return MicroBatch(STREAM, 0, {(TOPIC, number): 1 << 40 for number in range(partitions)})


def planned(sink: LakeCurrent, *tables: Table) -> CurrentWriter:
    return planned_by(CurrentWriter, sink, batch(), list(enumerate(tables)))


def inserted(value: str, written: int) -> list[Change]:
    return [LOG.insert((key,), (), written, v=value) for key in KEYS]


def shares(changes: Sequence[Change]) -> dict[KafkaPartition, Piece]:
    """The changes of each Kafka partition that has some."""
    numbers = [partition(token(change.key or b""), PARTITIONS) for change in changes]
    return {
        (TOPIC, number): piece([change for change, own in zip(changes, numbers, strict=True) if own == number])
        for number in sorted(set(numbers))
    }


def written(task: CurrentWriter, changes: Sequence[Change]) -> list[CommitMessage]:
    """What a copy of the task brings of each Kafka partition."""
    return [attempt(task, name, [share]) for name, share in shares(changes).items()]


def made(followed: Followed) -> LakeCurrent:
    """A driver whose tasks have written a row of each key."""
    sink = sink_of(followed)
    assert sink.batch_write(batch()).commit(written(planned(sink, PLAIN), inserted("a", 1))).rows == len(KEYS)
    return sink


def shown(followed: Followed) -> set[object]:
    return {value for _, value in followed.rows(PLAIN, "id", "v")}


def staged(result: CommitMessage) -> tuple[Staged, ...]:
    assert isinstance(result.detail, tuple)
    return result.detail


@pytest.mark.slow
@pytest.mark.promise("tasks.own-files")
def test_a_task_replaces_files_of_its_own_buckets_alone(followed: Followed) -> None:
    """A new table has as many buckets as the setting says, or more, so that partitions divide them."""
    sink = made(followed)
    entry = StateTable(followed.store.open("shop.plain-state")).entry()
    assert entry is not None
    assert entry.buckets == 6
    results = written(planned(sink), inserted("b", 2))
    for result in results:
        own = {result.share[1] * 2, result.share[1] * 2 + 1}
        for files in staged(result):
            assert {int(path.split("bucket=")[1].split("/")[0]) for path in files.replaced} == own
            assert len(files.replaced) == 2
    assert shown(followed) == {"a"}
    assert sink.batch_write(batch()).commit(results) == Summary(len(KEYS), len(KEYS))
    assert followed.rows(PLAIN, "id", "v") == selected(PLAIN, inserted("b", 2), "id", "v")


@pytest.mark.slow
@pytest.mark.promise("tasks.attempts")
def test_two_attempts_at_a_partition_come_out_as_one(followed: Followed) -> None:
    """A repeated task beside the one that Spark has given up, in the middle of its pieces."""
    sink = made(followed)
    task, changes = planned(sink), shares(inserted("b", 2))
    name, share = next(iter(changes.items()))
    others = [attempt(task, other, [changes[other]]) for other in changes if other != name]
    with interrupted(task, name, share, then=piece([])) as end:
        repeated = task.write(name, [share])
        assert sink.batch_write(batch()).commit([repeated, *others]).rows == len(KEYS)
        late = end()
    assert followed.rows(PLAIN, "id", "v") == selected(PLAIN, inserted("b", 2), "id", "v")
    with pytest.raises(ServiceError, match="another writer came first"):
        sink.batch_write(batch()).commit([late, *others])
    assert followed.rows(PLAIN, "id", "v") == selected(PLAIN, inserted("b", 2), "id", "v")


@pytest.mark.slow
@pytest.mark.promise("tasks.attempts")
@pytest.mark.parametrize("step", [pytest.param(step, marks=[pytest.mark.long] * (step != 2)) for step in range(5)])
def test_a_driver_that_dies_around_its_commits_leaves_what_the_batch_makes_good(followed: Followed, step: int) -> None:
    """Before the state's commit, behind it, before that of what is visible, and behind that."""
    made(followed)
    changes = [*inserted("b", 2)[::2], LOG.delete((1,), (), 3)]
    dying = sink_of(followed, step)
    results = written(planned(dying), changes)
    if step < 4:
        with pytest.raises(ServiceError, match="the process is dead"):
            dying.batch_write(batch()).commit(results)
    else:
        dying.batch_write(batch()).commit(results)
    restarted = sink_of(followed)
    if step in (2, 3) and shown(followed) == {"a"}:  # the state is ahead
        with pytest.raises(HereOnlyError):
            written(planned(restarted), changes)
    restarted.batch_write(batch()).commit(written(planned(restarted, PLAIN), changes))
    wanted = selected(PLAIN, [*inserted("a", 1), *changes], "id", "v")
    assert followed.rows(PLAIN, "id", "v") == wanted
    assert restarted.batch_write(batch()).commit(written(planned(restarted), changes)).rows == 0
    assert write_here(restarted, [piece(changes)]).rows == 0
    if step < 4:
        with pytest.raises(ServiceError, match="another writer came first"):
            dying.batch_write(batch()).commit(results)
    assert followed.rows(PLAIN, "id", "v") == wanted


@pytest.mark.slow
@pytest.mark.promise("tasks.attempts")
def test_files_that_were_compacted_meanwhile_are_not_replaced(followed: Followed) -> None:
    sink = made(followed)
    sink.batch_write(batch()).commit(
        written(planned(sink), [LOG.insert((key,), (), 1, v="a") for key in range(100, 120)])
    )
    results = written(planned(sink), inserted("b", 2))
    followed.compact()
    with pytest.raises(ServiceError, match="another writer came first"):
        sink.batch_write(batch()).commit(results)
    sink.batch_write(batch()).commit(written(planned(sink), inserted("b", 2)))
    rows = [*inserted("b", 2), *(LOG.insert((key,), (), 1, v="a") for key in range(100, 120))]
    assert followed.rows(PLAIN, "id", "v") == selected(PLAIN, rows, "id", "v")


@pytest.mark.slow
def test_what_the_plan_has_not_made_ready_is_the_drivers(followed: Followed) -> None:
    """A table, and a column that it lacks."""
    sink = sink_of(followed)
    with pytest.raises(HereOnlyError, match=r"shop\.plain"):
        written(planned(sink), inserted("a", 1))
    made(followed)
    wider = [Log(WIDER).insert((1,), (), 2, x="x")]
    with pytest.raises(HereOnlyError, match=r"shop\.plain"):
        written(planned(sink), wider)
    assert sink.batch_write(batch()).commit(written(planned(sink, WIDER), wider)).rows == 1
    assert (1, "x") in followed.rows(PLAIN, "id", "x")


def test_tables_that_tasks_cannot_write_are_the_drivers_before_any_task_runs(followed: Followed) -> None:
    """Where one bucket has keys of two partitions: the driver has made the table, or the topic has got more."""
    write(followed, LOG.insert((1,), (), 1, v="a"))
    with pytest.raises(HereOnlyError, match=r"shop\.plain has 5 buckets, .* of several of 3 partitions"):
        planned(sink_of(followed), PLAIN)
    assert planned_by(CurrentWriter, sink_of(followed), batch(5)).partitions == {TOPIC: 5}
    others = MicroBatch(STREAM, 0, {("t.shop.other", 2): 1})
    assert planned_by(CurrentWriter, sink_of(followed), others).partitions == {"t.shop.other": 3}


@pytest.mark.slow
def test_a_truncation_is_the_drivers(followed: Followed) -> None:
    sink = made(followed)
    with pytest.raises(HereOnlyError, match="a truncation of"):
        attempt(planned(sink), (TOPIC, 0), [piece([truncate(PLAIN, "a", 5)])])


@pytest.mark.slow
@pytest.mark.promise("tasks.own-files")
def test_keys_of_another_partition_are_the_drivers(followed: Followed) -> None:
    """Of each of the six buckets, those next to the partition's own two included."""
    task = planned(made(followed))
    by_bucket = {bucket_of(change.key or b"", 6): change for change in inserted("b", 2)}
    assert by_bucket.keys() == set(range(6))
    for change in by_bucket.values():
        own = partition(token(change.key or b""), PARTITIONS)
        for number in range(PARTITIONS):
            if number == own:
                attempt(task, (TOPIC, number), [piece([change])])
            else:
                with pytest.raises(HereOnlyError, match="has keys of other partitions' buckets"):
                    attempt(task, (TOPIC, number), [piece([change])])
