"""The runner: where a batch is written, what it is planned by, what ends it, what counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.errors import FencedError, ServiceError, SettingsError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import CommitMessage, MicroBatch, Summary
from tailrace_spark.job.progress import MANY_RECORDS, ExecutionChoice
from tailrace_spark.job.runner import Done, MissingPackagesError, Runner, write_shares
from tailrace_spark.sinks.protocol import DataWriter, HereOnlyError
from tailrace_spark.tasks.outcome import Failed, HereOnly, Outcome, RecordCounts, Written
from tests.unit.spark.sinks.planned import Planned, PlannedWriter
from tests.unit.tables import table

A, B, C = (("t.ks.t", number) for number in range(3))
BATCH = MicroBatch("stream", 7, {A: 1, B: 1, C: 1})
ORDERS, LINES, NOTES = (table({"id": "int"}, name=name) for name in ("orders", "lines", "notes"))


def entry(name: bytes, of: Table, announced: int, *, key: bool = False) -> SchemaEntry:
    return SchemaEntry(
        schema_id=name, topic=str(of), table=of, avro="", part="key" if key else "value", announced=announced
    )


SCHEMAS = [
    entry(b"lines", LINES, 9),
    entry(b"notes", NOTES, 5),
    entry(b"key", ORDERS, 8, key=True),
    entry(b"orders", ORDERS, 4),
]


def written(partition: KafkaPartition, records: int = 1) -> Written:
    return Written(CommitMessage(partition, Summary(records, records)), RecordCounts(records, {"late": records}))


@dataclass
class Attempts:
    """As Shares: what writers come to, one batch after another; by which writers they were run."""

    outcomes: Sequence[Outcome]
    error: Exception | None = None
    runs: list[object] = field(default_factory=list)

    def schemas(self) -> list[SchemaEntry]:
        return SCHEMAS

    def run(self, writer: DataWriter) -> Sequence[Outcome]:
        self.runs.append(writer)
        if self.error is not None:
            raise self.error
        return self.outcomes


def done(sink: Planned, *outcomes: Outcome) -> tuple[Attempts, tuple[Summary, RecordCounts]]:
    attempts = Attempts(outcomes)
    return attempts, write_shares(sink, BATCH, attempts, lambda of: None if of is NOTES else of)


def test_a_batch_is_planned_once_and_committed_with_all() -> None:
    """By what its records need, in the order in which it was announced: not what the sink does not see, and no keys."""
    sink = Planned()
    attempts, (summary, counts) = done(sink, written(A, records=2), written(B))
    assert sink.plans == [(BATCH, [(4, ORDERS), (9, LINES)])]
    assert attempts.runs == [PlannedWriter(0)]
    assert [result.share for _, results in sink.commits for result in results] == [A, B]
    assert (summary, counts) == (Summary(3, 3), RecordCounts(3, {"late": 3}))


@pytest.mark.parametrize(
    ("outcomes", "error", "words"),
    [
        ([Failed(C, ServiceError("down")), Failed(B, SettingsError("wrong"))], SettingsError, "wrong"),
        ([written(A), Failed(B, FencedError("newer"))], FencedError, "newer"),
        ([Failed(A, ServiceError("down")), HereOnly(B, "a truncation")], HereOnlyError, "a truncation"),
    ],
    ids=["the first partition's", "though others are written", "only here"],
)
def test_what_keeps_a_partition_from_being_written_is_raised(
    outcomes: list[Outcome], error: type[Exception], words: str
) -> None:
    sink = Planned()
    with pytest.raises(error, match=words):
        done(sink, *outcomes)
    assert (len(sink.plans), sink.commits) == (1, [])


def run(runner: Runner, choice: ExecutionChoice, attempts: Attempts, size: int = 1) -> Done | None:
    return runner.on_executors(3, size, {A: 1}, lambda: attempts, choice, lambda attempt: attempt())


@pytest.mark.promise("tasks.fence")
def test_shares_are_fenced_once_before_this_process_writes_and_again_behind_each_batch_of_theirs() -> None:
    """Also where the batch came to nothing, and before anything is known: an earlier driver may have left some."""
    sink, choice = Planned(), ExecutionChoice("executors")
    runner = Runner(sink, lambda: "stream")
    for _ in range(2):
        runner.here(1, [])
    assert run(runner, choice, Attempts([written(A)])) == (Summary(1, 1), RecordCounts(1, {"late": 1}))
    runner.here(2, [])
    with pytest.raises(ServiceError):
        run(runner, choice, Attempts([Failed(A, ServiceError("down"))]))
    for _ in range(2):
        runner.here(3, [])
    here = [batch for batch, _ in sink.plans if batch.here]
    assert [(batch.stream, batch.number, batch.fences) for batch in here] == [
        ("stream", number, fences) for number, fences in ((1, True), (1, False), (2, True), (3, True), (3, False))
    ]
    assert [batch for batch, _ in sink.plans if not batch.here] == [MicroBatch("stream", 3, {A: 1})] * 2


def test_a_batch_here_that_failed_fences_again() -> None:
    sink = Planned(fails=ServiceError("down"))
    runner = Runner(sink, lambda: "stream")
    with pytest.raises(ServiceError):
        runner.here(1, [])
    runner.here(1, [])
    assert [batch.fences for batch, _ in sink.plans] == [True, True]


def test_where_a_batch_is_written_is_known_before_the_sink_hears_of_it() -> None:
    sink, attempts = Planned(), Attempts([])
    assert run(Runner(sink, lambda: "stream"), ExecutionChoice("auto"), attempts, size=10) is None
    assert (sink.plans, attempts.runs) == ([], [])


def test_what_no_share_can_be_written_of_is_to_be_written_here() -> None:
    """Of this batch; without packages on executors all of them, or none where only executors may write."""
    runner = Runner(Planned(), lambda: "stream")
    choice, only = ExecutionChoice("auto"), ExecutionChoice("executors")
    assert run(runner, choice, Attempts([HereOnly(A, "a truncation")]), size=MANY_RECORDS) is None
    assert choice.choose(MANY_RECORDS) == "executors"
    lacking = Attempts([], MissingPackagesError("no module fastavro"))
    with pytest.raises(SettingsError, match="no module fastavro"):
        run(runner, only, lacking)
    assert run(runner, choice, lacking, size=MANY_RECORDS) is None
    assert choice.choose(MANY_RECORDS) == "driver"
