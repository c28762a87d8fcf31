"""The loop of a batch by tasks: what is planned again, what is kept meanwhile, what ends it, and what is committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.errors import FencedError, ServiceError, SettingsError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.batch.task_batch import PartitionResult, TaskBatch
from tailrace_spark.job.task_loop import SharedKeysError, write_by_tasks
from tailrace_spark.sinks.protocol import DriverOnlyError
from tailrace_spark.tasks.outcome import (
    DriverOnly,
    Failed,
    Outcome,
    RecordCounts,
    SharedKeys,
    Unprepared,
    Written,
)
from tests.unit.spark.sinks.planned import Planned, PlannedTask
from tests.unit.tables import table

A, B, C = (("t.ks.t", number) for number in range(3))
BATCH = TaskBatch("stream", 7, {A: 1, B: 1, C: 1})
ORDERS, LINES, NOTES = (table({"id": "int"}, name=name) for name in ("orders", "lines", "notes"))


def entry(name: bytes, of: Table, announced: int, *, key: bool = False) -> SchemaEntry:
    return SchemaEntry(
        schema_id=name, topic=str(of), table=of, avro="", part="key" if key else "value", announced=announced
    )


SCHEMAS = {
    b"orders": entry(b"orders", ORDERS, 4),
    b"lines": entry(b"lines", LINES, 9),
    b"notes": entry(b"notes", NOTES, 5),
    b"key": entry(b"key", ORDERS, 8, key=True),
}


def written(partition: KafkaPartition, *, of_plan: bool = False, records: int = 1) -> Written:
    result = PartitionResult(partition, Summary(records, records), of_plan=of_plan)
    return Written(result, RecordCounts(records, {"late": records}))


def unprepared(partition: KafkaPartition, *schema_ids: bytes) -> Unprepared:
    return Unprepared(partition, frozenset(schema_ids))


@dataclass
class Rounds:
    """What tasks come to, round by round; with which plan, and without which partitions, they were run."""

    outcomes: list[Sequence[Outcome]]
    runs: list[tuple[object, set[KafkaPartition]]] = field(default_factory=list)

    def run(self, task: object, finished: frozenset[KafkaPartition]) -> Sequence[Outcome]:
        self.runs.append((task, set(finished)))
        return self.outcomes[len(self.runs) - 1]


def done(sink: Planned, *outcomes: Sequence[Outcome]) -> tuple[Rounds, tuple[Summary, RecordCounts]]:
    rounds = Rounds(list(outcomes))
    return rounds, write_by_tasks(sink, BATCH, rounds.run, SCHEMAS, lambda of: None if of is NOTES else of)


def test_a_batch_that_lacks_nothing_is_planned_once_and_committed_with_all() -> None:
    sink = Planned()
    rounds, (summary, counts) = done(sink, [written(A, records=2), written(B)])
    assert sink.plans == [(BATCH, [])]
    assert rounds.runs == [(PlannedTask(0), set())]
    assert [result.partition for _, results in sink.commits for result in results] == [A, B]
    assert (summary, counts) == (Summary(3, 3), RecordCounts(3, {"late": 3}))


def test_what_tasks_lack_is_made_ready_in_the_order_in_which_it_was_announced() -> None:
    """What the sink does not see, keys and what nobody has published are not asked for."""
    sink = Planned()
    lacking = [unprepared(A, b"orders", b"key", b"unheard of"), unprepared(B, b"lines", b"notes")]
    done(sink, lacking, [written(A), written(B)])
    assert sink.plans == [(BATCH, []), (BATCH, [(4, ORDERS), (9, LINES)])]


@pytest.mark.promise("tasks.attempts")
def test_what_holds_for_one_plan_alone_is_attempted_again_with_the_next() -> None:
    """What is written is not, and both count once."""
    sink = Planned()
    rounds, (summary, counts) = done(
        sink,
        [written(A), written(B, of_plan=True), unprepared(C, b"orders")],
        [written(B, of_plan=True), unprepared(C, b"orders", b"lines")],
        [written(B, of_plan=True, records=5), written(C)],
    )
    assert rounds.runs == [(PlannedTask(0), set()), (PlannedTask(1), {A}), (PlannedTask(2), {A})]
    [(batch, results)] = sink.commits
    assert batch is BATCH
    assert [(result.partition, result.summary.changes) for result in results] == [(A, 1), (B, 5), (C, 1)]
    assert (summary.changes, counts.records) == (7, 7)


def test_a_sink_that_does_not_make_ready_what_it_is_asked_for_ends_it() -> None:
    sink = Planned()
    lacking: list[Sequence[Outcome]] = [[written(A), unprepared(B, b"orders", b"lines")]] * 3
    with pytest.raises(ServiceError, match=r"does not make ready what it needs for ks\.lines, ks\.orders"):
        done(sink, *lacking)
    assert (len(sink.plans), sink.commits) == (2, [])


@pytest.mark.parametrize(
    ("outcomes", "error", "words"),
    [
        ([Failed(C, ServiceError("down")), Failed(B, SettingsError("wrong"))], SettingsError, "wrong"),
        ([unprepared(A, b"orders"), Failed(B, FencedError("newer"))], FencedError, "newer"),
        ([Failed(A, ServiceError("down")), SharedKeys(B)], SharedKeysError, r"t\.ks\.t, partition 1, has keys"),
        ([written(A), DriverOnly(B, "a truncation")], DriverOnlyError, "a truncation"),
    ],
    ids=["the first partition's", "though others lack something", "shared keys", "only the driver"],
)
def test_what_keeps_a_partition_from_being_written_is_raised(
    outcomes: list[Outcome], error: type[Exception], words: str
) -> None:
    sink = Planned()
    with pytest.raises(error, match=words):
        done(sink, outcomes)
    assert (len(sink.plans), sink.commits) == (1, [])
