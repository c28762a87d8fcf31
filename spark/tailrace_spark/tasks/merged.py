"""`merged`: changes of a batch and stored rows to the rows that SELECT returns, for jobs of one's own; on executors."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, GroupedData
from pyspark.sql import functions as F

from tailrace_common.settings import Settings
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.change import Deletion, Op
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import DeadLetter, Delivered
from tailrace_spark.merge.batch_changes import gather, truncate_batch
from tailrace_spark.merge.erasure import erase_partitions
from tailrace_spark.merge.partition import MergeResult, PartitionMerge, RowToStore, StoredPartition, mergeable
from tailrace_spark.merge.stored_row import RowKey
from tailrace_spark.merge.table_record import TableRecord, decode_record, encode_record, truncate
from tailrace_spark.rowstate.truncation import TruncationState
from tailrace_spark.sinks.lake.state import stored_partitions, stored_rows
from tailrace_spark.sinks.lake.visible_rows import HIDDEN, LakeRowRenderer, rows_of
from tailrace_spark.source.changes import value_schemas, whole_definition
from tailrace_spark.source.decode import BY_OFFSET, pieces
from tailrace_spark.streams.assign import begin_task
from tailrace_spark.tasks.partition_writer import TaskSchemas

STATE: Final = pa.schema(
    [("token", pa.int64()), ("key", pa.binary()), ("clustering", pa.binary()), ("state", pa.binary()),
     ("generation", pa.int64()), ("stream_id", pa.binary()), ("next_expiry", pa.int64()),
     ("written_as", pa.list_(pa.binary()))]
)  # fmt: skip
"""The columns of a stored row; what they have is for the next merge."""
ROW: Final = "row"
PROBLEM: Final = "problem"

ReadRows = Callable[[int], DataFrame | None]
"""The stored rows before a batch of this number; None: none yet."""
WriteRows = Callable[[DataFrame, int], None]
"""Takes the rows after a batch of this number."""

_GROUPS: Final = 16
_GROUP: Final = "tailrace_group"


@dataclass(frozen=True, slots=True)
class GroupMerge:
    """What all groups of a merge share.

    `ring_delay` and `now` are in seconds. `erased` is what the truncations take of what was stored before.
    `everything`: rows without changes are merged too. `early`: changes that a crash may take back are taken.
    """

    table: Table
    schemas: Mapping[bytes, SchemaEntry]
    truncations: TruncationState
    ring_delay: float
    erased: Deletion | None
    now: int
    everything: bool
    early: bool = False


def row_type(table: Table) -> Any:
    """The Arrow type of a visible row: the table's columns."""
    return pa.struct([field for field in _renderer(table).schema if field.name not in HIDDEN])


def result_schema(table: Table) -> Any:
    """The Arrow schema of what `merge_group` gives."""
    return STATE.append(pa.field(ROW, row_type(table))).append(pa.field(PROBLEM, pa.string()))


def merge_group(work: GroupMerge, changes: pa.Table, stored: pa.Table) -> pa.Table:
    """All stored rows of a group's partitions after its changes, in `result_schema`, and the changes that fail.

    `changes` are records as tailrace_spark.streams.assign has them, `stored` rows of STATE.
    """
    begin_task()
    renderer = _renderer(work.table)
    letters: list[DeadLetter] = []
    delivered: list[Delivered] = []
    for piece in pieces(changes.sort_by(BY_OFFSET), work.schemas, early=work.early):
        letters += piece.dead_letters
        delivered += [change for change in piece.changes if _is_of(work.table, change)]
    delivered = list(truncate_batch(work.truncations, delivered, work.ring_delay).left)
    partitions = stored_partitions(stored_rows(stored))
    try:
        result = _merged(work, renderer, partitions, delivered)
    except DecodeError:
        good = mergeable(delivered, renderer, letters)
        result = _merged(work, renderer, stored_partitions(stored_rows(stored)), good)
    tokens = dict(zip(stored["key"].to_pylist(), stored["token"].to_pylist(), strict=True))
    tokens |= {row.change.key: row.change.token for row in delivered if row.change.key is not None}
    state = _state(stored, result, tokens)
    return pa.concat_tables([_with_rows(state, renderer, work.now), _problems(letters, work.table)])


def _is_of(table: Table, delivered: Delivered) -> bool:
    """Whether it is a change of rows of this very table. Truncations are the driver's: they concern all groups."""
    return delivered.change.table.id == table.id and delivered.change.op is not Op.TRUNCATE


def _renderer(table: Table) -> LakeRowRenderer:
    return LakeRowRenderer(table, 1)


def _merged(
    work: GroupMerge,
    renderer: LakeRowRenderer,
    partitions: Mapping[bytes, StoredPartition],
    delivered: list[Delivered],
) -> MergeResult[list[object]]:
    merge = PartitionMerge(renderer, work.now, all_rows=work.everything)
    if work.erased is None:
        return merge.merge(partitions, gather(delivered))
    remaining, result = erase_partitions(renderer, partitions, work.erased, work.now)
    return result.then(merge.merge(remaining, gather(delivered)))


def _state(stored: Any, result: MergeResult[list[object]], tokens: Mapping[bytes, int]) -> Any:
    """The stored rows after a merge, in the order of their keys."""
    rows: dict[RowKey, dict[str, Any]] = {
        (row["key"], row["clustering"]): row for row in stored.select(STATE.names).to_pylist()
    }
    for row_key in result.removed:
        rows.pop(row_key, None)
    for row in result.stored:
        rows[row[0][0], row[0][1]] = _as_row(row, tokens)
    return pa.Table.from_pylist([rows[row_key] for row_key in sorted(rows)], schema=STATE)


def _as_row(row: RowToStore, tokens: Mapping[bytes, int]) -> dict[str, Any]:
    (key, clustering, _, state, generation, stream_id, expiry, _), written_as = row
    return {
        "token": tokens[key], "key": key, "clustering": clustering, "state": state, "generation": generation,
        "stream_id": stream_id, "next_expiry": expiry, "written_as": None if written_as is None else list(written_as),
    }  # fmt: skip


def _with_rows(state: Any, renderer: LakeRowRenderer, now: int) -> Any:
    """The stored rows, each with the row that SELECT returns of it, or null."""
    visible = rows_of(renderer, stored_partitions(stored_rows(state)), now)
    rendered = pa.Table.from_batches([renderer.arrow(list(visible.values()))], renderer.schema).drop_columns(
        list(HIDDEN)
    )
    structs = rendered.to_struct_array().combine_chunks() if visible else pa.array([], row_type(renderer.table))
    index_of = {row_key: index for index, row_key in enumerate(visible)}
    keys = zip(state["key"].to_pylist(), state["clustering"].to_pylist(), strict=True)
    rows = structs.take(pa.array([index_of.get(row_key) for row_key in keys], pa.int64()))
    problems = pa.nulls(len(state), pa.string())
    return state.append_column(ROW, rows.cast(row_type(renderer.table))).append_column(PROBLEM, problems)


def _problems(letters: list[DeadLetter], table: Table) -> Any:
    texts = []
    for letter in letters:
        record = letter.record_id
        texts.append(f"{record.topic}, partition {record.partition}, offset {record.offset}: {letter.reason}")
    return pa.Table.from_pylist([{PROBLEM: text} for text in texts], schema=result_schema(table))


def merged(
    changes: DataFrame,
    stored: DataFrame | None,
    settings: Settings,
    table: str,
    *,
    now: Callable[[], float] = time.time,
    groups: int = _GROUPS,
) -> DataFrame:
    """The rows of `table` ("keyspace.table") after a batch of changes: a DataFrame to be stored for the next one.

    `changes` is a batch of `tailrace_spark.changes(spark, settings)`, in `foreachBatch`. `stored` is what the call for
    the batch before gave, read back; None: nothing yet. Merging a batch again, or late, changes nothing.

    A row of the result has `row`, a struct of the table's columns as SELECT returns them; null where it returns none.
    The other columns are for the next merge, and all rows are to be stored but those with a `problem`. These are
    changes that cannot be decoded or merged, with their place in Kafka.

    Partitions are merged in `groups`, each in one task. A group has to fit into a Python worker's memory. Rows that
    nothing changes are passed on in the JVM. `now` gives seconds since the epoch: what has expired is not returned.
    Raises ServiceError while the table has no schema in `<prefix>.schemas`.
    """
    entries = value_schemas(settings, table)
    batch = changes.where(F.col("topic").isin(sorted({entry.topic for entry in entries.values()})))
    definition = whole_definition(entries.values())
    seconds = int(now())
    schemas = TaskSchemas.of(entries)
    former = None if stored is None else _record_of(stored)
    if former is not None and former.definition.id != definition.id:
        former = stored = None  # it was dropped and created again
    ring_delay = settings.generations.ring_delay_seconds
    record = TableRecord(definition) if former is None else replace(former, definition=definition)
    record, truncated = truncate(record, _truncations(batch, entries, definition), ring_delay)
    erased = truncated.erased
    spark = changes.sparkSession
    empty = spark.createDataFrame(result_schema(definition).empty_table())
    state = empty if stored is None else stored.where("key IS NOT NULL")
    all_rows = erased is not None or (former is not None and former.definition != definition)
    work = GroupMerge(
        definition,
        schemas,
        record.truncations,
        ring_delay,
        erased,
        seconds,
        all_rows,
        settings.stream.accept_early,
    )
    whole_table = pa.Table.from_pylist([{"state": encode_record(record).encode()}], schema=result_schema(definition))
    return _rows(batch, state, work, empty, groups).unionByName(spark.createDataFrame(whole_table))


def merging(settings: Settings, table: str, read: ReadRows, write: WriteRows) -> Callable[[DataFrame, int], None]:
    """A function for `writeStream.foreachBatch` that merges each batch of `tailrace_spark.changes(spark, settings)`.

    `read` gives the stored rows as they were before a batch, and `write` takes all rows after it, as `merged` has them.
    A batch may be redelivered after a crash: `write` then replaces what it had written of it.
    """

    def take(frame: DataFrame, batch: int) -> None:
        frame.persist()  # it is read twice
        try:
            write(merged(frame, read(batch), settings, table), batch)
        finally:
            frame.unpersist()

    return take


def _rows(batch: DataFrame, state: DataFrame, work: GroupMerge, empty: DataFrame, groups: int) -> DataFrame:
    """All stored rows after a batch; those of partitions that nothing changes stay in the JVM."""
    touched, rest = _touched(batch, state, work.now, all_partitions=work.everything)
    grouped = [_grouped(frame, groups) for frame in (batch, touched.select(*STATE.names))]
    rows: DataFrame = grouped[0].cogroup(grouped[1]).applyInArrow(partial(merge_group, work), empty.schema)
    return rows if rest is None else rows.unionByName(rest)


def _record_of(stored: DataFrame) -> TableRecord | None:
    rows = stored.where(f"key IS NULL AND {PROBLEM} IS NULL").select("state").collect()
    return decode_record(bytes(rows[0].state))[0] if rows else None


def _truncations(batch: DataFrame, entries: Mapping[bytes, SchemaEntry], definition: Table) -> list[Delivered]:
    """Those of the table in a batch."""
    truncates = batch.where("op = 'truncate'").toArrow()
    delivered = [change for piece in pieces(truncates, entries, early=True) for change in piece.changes]
    return [truncation for truncation in delivered if truncation.change.table.id == definition.id]


def _touched(
    batch: DataFrame, state: DataFrame, now: int, *, all_partitions: bool
) -> tuple[DataFrame, DataFrame | None]:
    """The stored rows of partitions that a batch, or time, changes; and the others, as they are."""
    if all_partitions:
        return state, None
    expired = state.where(F.col("next_expiry") <= now).select("token")
    tokens = batch.select("token").union(expired).where("token IS NOT NULL").distinct()
    return state.join(tokens, "token", "left_semi"), state.join(tokens, "token", "left_anti")


def _grouped(frame: DataFrame, groups: int) -> GroupedData:
    return frame.groupBy(F.pmod(F.coalesce(F.col("token"), F.lit(0)), F.lit(groups)).alias(_GROUP))
