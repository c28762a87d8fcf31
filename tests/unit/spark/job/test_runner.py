"""The runner: where a batch is written, what is planned again, what is kept meanwhile, what ends it, what counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.errors import FencedError, ServiceError, SettingsError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.batch.micro_batch import CommitMessage, MicroBatch
from tailrace_spark.job.execution import ExecutionChoice
from tailrace_spark.job.runner import MissingPackagesError, Runner, write_shares
from tailrace_spark.sinks.protocol import DataWriter, HereOnlyError
from tailrace_spark.tasks.outcome import Failed, HereOnly, Outcome, RecordCounts, Unprepared, Written
from tests.unit.spark.sinks.planned import Planned, PlannedWriter
from tests.unit.tables import table

A, B, C = (("t.ks.t", number) for number in range(3))
BATCH = MicroBatch("stream", 7, {A: 1, B: 1, C: 1})
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
    result = CommitMessage(partition, Summary(records, records), of_plan=of_plan)
    return Written(result, RecordCounts(records, {"late": records}))


def unprepared(partition: KafkaPartition, *schema_ids: bytes) -> Unprepared:
    return Unprepared(partition, frozenset(schema_ids))


@dataclass
class Rounds:
    """As Shares: what writers come to, round by round; with which plan, and without which shares, they were run."""

    outcomes: list[Sequence[Outcome]]
    error: Exception | None = None
    runs: list[tuple[object, set[KafkaPartition]]] = field(default_factory=list)
    schemas: Mapping[bytes, SchemaEntry] = field(default_factory=lambda: SCHEMAS)

    def run(self, writer: DataWriter, written: frozenset[KafkaPartition]) -> Sequence[Outcome]:
        self.runs.append((writer, set(written)))
        if self.error is not None:
            raise self.error
        return self.outcomes[len(self.runs) - 1]


def done(sink: Planned, *outcomes: Sequence[Outcome]) -> tuple[Rounds, tuple[Summary, RecordCounts]]:
    rounds = Rounds(list(outcomes))
    return rounds, write_shares(sink, BATCH, rounds, lambda of: None if of is NOTES else of)


def test_a_batch_that_lacks_nothing_is_planned_once_and_committed_with_all() -> None:
    sink = Planned()
    rounds, (summary, counts) = done(sink, [written(A, records=2), written(B)])
    assert sink.plans == [(BATCH, [])]
    assert rounds.runs == [(PlannedWriter(0), set())]
    assert [result.share for _, results in sink.commits for result in results] == [A, B]
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
    assert rounds.runs == [(PlannedWriter(0), set()), (PlannedWriter(1), {A}), (PlannedWriter(2), {A})]
    [(batch, results)] = sink.commits
    assert batch is BATCH
    assert [(result.share, result.summary.changes) for result in results] == [(A, 1), (B, 5), (C, 1)]
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
        ([Failed(A, ServiceError("down")), HereOnly(B, "a truncation")], HereOnlyError, "a truncation"),
    ],
    ids=["the first partition's", "though others lack something", "only here"],
)
def test_what_keeps_a_partition_from_being_written_is_raised(
    outcomes: list[Outcome], error: type[Exception], words: str
) -> None:
    sink = Planned()
    with pytest.raises(error, match=words):
        done(sink, outcomes)
    assert (len(sink.plans), sink.commits, sink.aborted) == (1, [], [BATCH])


def run(runner: Runner, choice: ExecutionChoice, rounds: Rounds, size: int = 1) -> tuple[Summary, RecordCounts] | None:
    return runner.on_executors(3, size, {A: 1}, lambda: rounds, choice, lambda attempt: attempt())


@pytest.mark.promise("tasks.fence")
def test_shares_are_fenced_once_before_this_process_writes_and_again_behind_each_batch_of_theirs() -> None:
    """Also where the batch came to nothing, and before anything is known: an earlier driver may have left some."""
    sink, choice = Planned(), ExecutionChoice("executors")
    runner = Runner(sink, lambda: "stream")
    for _ in range(2):
        runner.here(1, [])
    assert run(runner, choice, Rounds([[written(A)]])) == (Summary(1, 1), RecordCounts(1, {"late": 1}))
    runner.here(2, [])
    with pytest.raises(ServiceError):
        run(runner, choice, Rounds([[Failed(A, ServiceError("down"))]]))
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
    assert sink.aborted == [sink.plans[0][0]]


def test_where_a_batch_is_written_is_known_before_the_sink_hears_of_it() -> None:
    sink, rounds = Planned(), Rounds([])
    assert run(Runner(sink, lambda: "stream"), ExecutionChoice("auto"), rounds, size=10) is None
    assert (sink.plans, rounds.runs) == ([], [])


def test_what_no_share_can_be_written_of_is_to_be_written_here() -> None:
    """Of this batch; without packages on executors all of them, or none where only executors may write."""
    runner = Runner(Planned(), lambda: "stream")
    choice, only = ExecutionChoice("auto", large=1), ExecutionChoice("executors")
    assert run(runner, choice, Rounds([[HereOnly(A, "a truncation")]])) is None
    assert choice.choose(1) == "executors"
    lacking = Rounds([], MissingPackagesError("no module fastavro"))
    with pytest.raises(SettingsError, match="no module fastavro"):
        run(runner, only, lacking)
    assert run(runner, choice, lacking) is None
    assert choice.choose(1) == "driver"
