"""A task's work in this process, on records as Kafka has them: what each partition comes to, and what is counted."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import Broadcast

from tailrace_schemas.avro import Encoder, SchemaEntry, entry_from_record, own_ids, schema_records
from tailrace_schemas.change import Change
from tailrace_schemas.errors import FencedError, ServiceError, SettingsError
from tailrace_schemas.masks import Masks, Rule
from tailrace_schemas.ring import Node, Ring
from tailrace_schemas.streams import build_generation
from tailrace_schemas.tokens import first_token
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import CommitMessage, Piece, Summary
from tailrace_spark.batch.pieces import one_copy
from tailrace_spark.shaping import Filters, split_conditions
from tailrace_spark.sinks.protocol import HereOnlyError
from tailrace_spark.streams.lookup import StreamTable
from tailrace_spark.tasks.outcome import COLUMN, Failed, HereOnly, Outcome, Written, outcomes_of
from tailrace_spark.tasks.partition_writer import PartitionWriter, TaskSchemas, TaskSettings, partition_runs
from tests.unit.spark.cassandra import Log, truncate, with_source
from tests.unit.spark.sinks.planned import PlannedWriter, Write, read_all
from tests.unit.spark.tasks.announced import entries
from tests.unit.tables import table

PREFIX = "p"
TOPIC = "p.shop.plain"
PLAIN = table({"id": "int"}, regular={"v": "text", "w": "int"}, keyspace="shop", name="plain")
WIDER = replace(PLAIN, regular=(*PLAIN.regular, *table({"id": "int"}, regular={"x": "text"}).regular))
ENCODERS = {of.regular: Encoder(of, PREFIX) for of in (PLAIN, WIDER)}
LOG = Log(PLAIN)
GENERATIONS = StreamTable.of([build_generation(Ring((Node("a", "dc", (0,)),)), 1, 0, timestamp=0, seed=0)], None)
HALF = first_token(1, 2)
Records = list[tuple[str, int, int]]


def schemas() -> dict[bytes, SchemaEntry]:
    published = {}
    for announced, encoder in enumerate(ENCODERS.values()):
        for schema_id, value in schema_records(encoder, TOPIC, own_ids(encoder)):
            published[schema_id] = replace(entry_from_record(schema_id, value), announced=announced)
    return published


SCHEMAS = schemas()


@dataclass(frozen=True)
class Sent:
    """As Spark's Broadcast: what a worker process has of it."""

    value: Any


def changes_of(partition: int, count: int, of: Log = LOG) -> list[Change]:
    """So many changes whose keys are of a partition of two."""
    made = (of.insert((key,), (), 1_000_000, v=f"{key}", w=key) for key in itertools.count())
    return list(itertools.islice((change for change in made if (change.token >= HALF) is bool(partition)), count))


def head(change: Change | bytes | None, partition: int, offset: int, topic: str = TOPIC) -> dict[str, Any]:
    """A record as `with_head` has it; of what is no change the head is null."""
    place = {"topic": topic, "partition": partition, "offset": offset, "published": 1_000}
    if not isinstance(change, Change):
        return {**dict.fromkeys(("op", "token", "written", "ttl", "expires", "digest", "schema_id")), **place,
                "value": change}  # fmt: skip
    encoder = ENCODERS[change.table.regular]
    written = change.marker or change.deletion
    return {
        "op": change.op.value, "token": change.token, "written": written and written.written, "ttl": None,
        "expires": None, "digest": change.digest, **place, "schema_id": encoder.schema_id,
        "value": encoder.value(change),
    }  # fmt: skip


def batches(rows: Sequence[Mapping[str, Any]], size: int = 3) -> list[pa.RecordBatch]:
    types = {
        "op": pa.string(), "token": pa.int64(), "written": pa.int64(), "ttl": pa.int32(), "expires": pa.int64(),
        "digest": pa.binary(), "topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(),
        "schema_id": pa.binary(), "published": pa.int64(), "value": pa.binary(),
    }  # fmt: skip
    table: pa.Table = pa.Table.from_pylist(list(rows), schema=pa.schema(list(types.items())))
    return list(table.to_batches(max_chunksize=size))


def counted(partition: KafkaPartition, pieces: Iterable[Piece]) -> CommitMessage:
    """Takes all in, and tells what it was given: of each change value, offset and assignment; dead letters."""
    read = list(pieces)
    changes = [delivered for piece in read for delivered in piece.changes]
    seen = [(first_value(one.change), one.record_id.offset, one.assignment) for one in changes]
    letters = [(letter.record_id.offset, letter.message) for piece in read for letter in piece.dead_letters]
    return replace(read_all(partition, read), detail=(seen, letters))


def first_value(change: Change) -> bytes | None:
    return change.cells[0].value if change.cells else None


def written_by(
    rows: Sequence[Mapping[str, Any]],
    act: Write = counted,
    *,
    masks: Masks | None = None,
    early: bool = False,
    where: str | None = None,
) -> list[Outcome]:
    """The outcomes of a task, as the driver gets them."""
    conditions = None if where is None else split_conditions({"*": where}, "stream.where")[1]
    filters = None if conditions is None else partial(Filters, conditions, written=True)
    writer = PartitionWriter(
        PlannedWriter(0, act),
        cast(Broadcast[StreamTable], Sent(GENERATIONS)),
        None,
        cast(Broadcast[TaskSchemas], Sent(TaskSchemas.of(SCHEMAS))),
        {TOPIC: 2},
        TaskSettings(PREFIX, masks, early, mixed=False, filters=filters),
    )
    return outcomes_of(row.column(COLUMN)[0].as_py() for row in writer.outcomes(batches(rows)))


def raising(error: Exception, after: int = 0) -> Write:
    """A task that fails behind so many pieces."""

    def act(partition: KafkaPartition, pieces: Iterable[Piece]) -> CommitMessage:
        del partition
        for _ in zip(range(after), pieces, strict=False):
            pass
        raise error

    return act


def told(outcome: Outcome) -> CommitMessage:
    assert isinstance(outcome, Written)
    return outcome.message


def rows_of(partition: int, changes: Sequence[Change | bytes | None], first: int = 0) -> list[dict[str, Any]]:
    return [head(change, partition, offset) for offset, change in enumerate(changes, first)]


def test_each_partition_comes_to_an_outcome_of_its_own_records_in_their_order() -> None:
    low, high = changes_of(0, 5), changes_of(1, 4)
    first, second = written_by([*rows_of(0, low, 10), *rows_of(1, high, 20)])
    for outcome, partition, changes, offset in ((first, 0, low, 10), (second, 1, high, 20)):
        result = told(outcome)
        assert (result.share, result.summary.changes) == ((TOPIC, partition), len(changes))
        seen, letters = cast(Any, result.detail)
        assert [place for _, place, _ in seen] == list(range(offset, offset + len(changes)))
        assert [value for value, _, _ in seen] == [first_value(change) for change in changes]
        assert all(assignment is not None for _, _, assignment in seen)
        assert letters == []
        assert isinstance(outcome, Written)
        assert outcome.counts.records == len(changes)
        assert outcome.counts.tables == {"shop.plain": (len(changes), 1_000_000)}


@pytest.mark.promise("stream.execution")
def test_keys_of_another_partition_are_told_before_anything_is_written() -> None:
    """The topic grew: the sink's task gets no record of the batch that has them, and raises nothing of its own."""
    rows = [*rows_of(0, [*changes_of(0, 3), *changes_of(1, 1)]), *rows_of(1, changes_of(1, 2))]
    first, second = written_by(rows)
    assert first == HereOnly((TOPIC, 0), f"{TOPIC}, partition 0, has keys that another partition has")
    assert told(second).summary == Summary(2, 2)


@pytest.mark.promise("tasks.truncations-of-logs")
def test_a_truncation_is_of_the_keys_of_all_shares() -> None:
    """What is before it in the same piece is not written either."""
    rows = rows_of(1, [*changes_of(1, 1), truncate(PLAIN, "h", 1_000_000)])
    given: list[Piece] = []

    def act(share: KafkaPartition, pieces: Iterable[Piece]) -> CommitMessage:
        given.extend(pieces)
        return read_all(share, given)

    assert written_by(rows, act) == [HereOnly((TOPIC, 1), "a truncation of shop.plain, which is of all keys")]
    assert given == []


@pytest.mark.parametrize(
    ("raised", "kind"), [(ServiceError("down"), ServiceError), (SettingsError("no"), SettingsError),
                         (FencedError("newer"), FencedError)]
)  # fmt: skip
def test_what_the_sink_raises_is_told_of_its_partition_and_the_others_go_on(
    raised: Exception, kind: type[Exception]
) -> None:
    def act(partition: KafkaPartition, pieces: Iterable[Piece]) -> CommitMessage:
        if partition == (TOPIC, 0):
            raise raised
        return counted(partition, pieces)

    first, second = written_by([*rows_of(0, changes_of(0, 4)), *rows_of(1, changes_of(1, 4))], act)
    assert isinstance(first, Failed)
    assert (first.partition, type(first.error), str(first.error)) == ((TOPIC, 0), kind, str(raised))
    assert told(second).summary.changes == 4


def test_what_only_the_driver_can_write_is_told_with_its_reason() -> None:
    assert written_by(rows_of(0, changes_of(0, 1)), raising(HereOnlyError("a truncation"))) == [
        HereOnly((TOPIC, 0), "a truncation")
    ]


def test_what_the_driver_cannot_be_told_fails_the_task() -> None:
    with pytest.raises(ZeroDivisionError):
        written_by(rows_of(0, changes_of(0, 1)), raising(ZeroDivisionError()))


def test_what_is_no_change_is_a_dead_letter_with_its_bytes() -> None:
    change = changes_of(0, 1)[0]
    [outcome] = written_by(rows_of(0, [change, b"rubbish", None]))
    _, letters = cast(Any, told(outcome).detail)
    assert letters == [(1, b"rubbish"), (2, b"")]
    assert isinstance(outcome, Written)
    assert (outcome.counts.records, outcome.counts.marks["undecodable"]) == (3, 2)


@pytest.mark.promise("shaping.filtered-table")
def test_filters_leave_changes_out_by_the_newest_names_and_count_them() -> None:
    """`x` is a column of the wider definition alone, which was announced later: changes of both have it."""
    low = [*changes_of(0, 4), *changes_of(0, 6, Log(WIDER))[4:]]
    where = "columns.w IN (0, 1, 2, 5) AND columns.x IS NULL OR columns.v = '9'"
    [outcome] = written_by(rows_of(0, [*low, b"rubbish"]), where=where)
    seen, letters = cast(Any, told(outcome).detail)
    asked_for = {number.to_bytes(4, "big") for number in (0, 1, 2, 5)}
    wanted = [offset for offset, change in enumerate(low) if change.cells[1].value in asked_for]
    assert [offset for _, offset, _ in seen] == wanted
    assert [offset for offset, _ in letters] == [len(low)]
    assert isinstance(outcome, Written)
    assert outcome.counts.left_out == {"shop.plain": len(low) - len(wanted)}
    assert outcome.counts.records == len(low) + 1


def test_masks_hold_before_the_sink_sees_anything() -> None:
    """Nor has it the bytes of what could not be decoded."""
    masks = Masks([Rule.parse("shop.plain.v", "drop")])
    [outcome] = written_by(rows_of(0, [changes_of(0, 1)[0], b"rubbish"]), masks=masks)
    seen, letters = cast(Any, told(outcome).detail)
    assert [value for value, _, _ in seen] == [changes_of(0, 1)[0].cells[1].value]
    assert letters == [(1, b"")]


def test_what_a_crash_may_take_back_is_refused_unless_it_is_accepted() -> None:
    early = with_source(changes_of(0, 1)[0], durable=False)
    [outcome] = written_by(rows_of(0, [early]))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, SettingsError)
    assert "accept_early" in str(outcome.error)
    [taken] = written_by(rows_of(0, [early]), early=True)
    assert told(taken).summary.changes == 1


@pytest.mark.promise("tasks.copies")
def test_a_task_that_makes_rows_is_given_one_copy_and_every_other_one_all() -> None:
    """All of them are counted. A table with truncations has all copies too."""
    changes = changes_of(0, 5)
    rows = rows_of(0, [with_source(change, host=host) for host in "abc" for change in changes])

    def merging(partition: KafkaPartition, pieces: Iterable[Piece]) -> CommitMessage:
        return counted(partition, one_copy(pieces, lambda table: table.name == "truncated"))

    def of_a_truncated_table(partition: KafkaPartition, pieces: Iterable[Piece]) -> CommitMessage:
        return counted(partition, one_copy(pieces, lambda table: table == PLAIN))

    for act, offsets in ((merging, range(5)), (of_a_truncated_table, range(15)), (counted, range(15))):
        [outcome] = written_by(rows, act)
        seen, _ = cast(Any, told(outcome).detail)
        assert [offset for _, offset, _ in seen] == list(offsets)
        assert isinstance(outcome, Written)
        assert outcome.counts.records == 15


def batch(records: Records) -> pa.RecordBatch:
    topics, partitions, offsets = zip(*records, strict=True) if records else ((), (), ())
    columns = [pa.array(topics, pa.string()), pa.array(partitions, pa.int32()), pa.array(offsets, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, names=["topic", "partition", "offset"])


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 4)), unique=True), st.integers(1, 9))
def test_runs_are_the_records_in_their_order(lengths: Records, size: int) -> None:
    records = [(topic, number, offset) for topic, number, length in lengths for offset in range(length)]
    batches = [batch(records[start : start + size]) for start in range(0, len(records), size)]
    runs = [
        (partition, [offset for run in batches_of for offset in run.column("offset").to_pylist()])
        for partition, batches_of in partition_runs([*batches, batch([])])
    ]
    assert [(*partition, offset) for partition, offsets in runs for offset in offsets] == records
    assert all(first[0] != second[0] for first, second in pairwise(runs))


def test_what_is_left_of_a_partition_is_passed_over() -> None:
    runs = partition_runs([batch([("a", 0, 0), ("a", 0, 1), ("b", 0, 0)]), batch([("b", 0, 1), ("b", 1, 0)])])
    assert [partition for partition, _ in runs] == [("a", 0), ("b", 0), ("b", 1)]


def test_what_arrives_is_what_was_sent_in_compiled_code_too() -> None:
    sent = entries()
    arrived: TaskSchemas = pickle.loads(pickle.dumps(TaskSchemas.of(sent)))  # noqa: S301 - our own
    assert dict(arrived) == sent
    assert [entry.announced for entry in arrived.values()] == [entry.announced for entry in sent.values()]


def test_an_entry_is_made_once_and_an_unknown_one_is_none() -> None:
    schemas = TaskSchemas.of(entries())
    assert all(schemas[schema_id] is schemas[schema_id] for schema_id in schemas)
    assert schemas.get(b"unheard-") is None
    with pytest.raises(KeyError):
        schemas[b"unheard-"]


def test_schemas_that_are_sent_again_have_the_same_definitions() -> None:
    """Sinks of a worker process keep 100 KiB and more for each; all are sent again where any table has a new one."""
    sent = entries()
    before, after = (pickle.loads(pickle.dumps(TaskSchemas.of(sent))) for _ in range(2))  # noqa: S301 - our own
    assert all(after[schema_id].table is before[schema_id].table for schema_id in sent)


def test_the_newest_definition_of_a_table_is_known_by_its_id() -> None:
    schemas = TaskSchemas.of(entries())
    for entry in schemas.values():
        ours = [other for other in schemas.values() if other.part == "value" and other.table.id == entry.table.id]
        assert schemas.newest(entry.table) is max(ours, key=lambda other: other.announced).table
