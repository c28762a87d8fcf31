"""Merges the changes of some partitions with their stored rows, in a task of Spark: Arrow in, Arrow out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.change import Deletion, Op
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.table import Table
from tailrace_schemas.table_json import table_from_json
from tailrace_spark.batch.delivery import DeadLetter, Delivered
from tailrace_spark.merge.batch_changes import gather
from tailrace_spark.merge.erasure import erase_partitions
from tailrace_spark.merge.partition import MergeResult, PartitionMerge, RowToStore, StoredPartition, mergeable
from tailrace_spark.merge.stored_row import RowKey
from tailrace_spark.merge.truncation import truncate_batch
from tailrace_spark.rowstate.codec import decode_truncations
from tailrace_spark.rowstate.truncation import EVERYTHING
from tailrace_spark.sinks.lake.row_changes import rows_of
from tailrace_spark.sinks.lake.state import stored_partitions, stored_rows
from tailrace_spark.sinks.lake.visible_rows import HIDDEN, LakeRowRenderer
from tailrace_spark.source.decode import BY_OFFSET, pieces
from tailrace_spark.streams.worker_imports import begin_task

STATE: Final = pa.schema(
    [("token", pa.int64()), ("key", pa.binary()), ("clustering", pa.binary()), ("state", pa.binary()),
     ("generation", pa.int64()), ("stream_id", pa.binary()), ("next_expiry", pa.int64()),
     ("written_as", pa.list_(pa.binary()))]
)  # fmt: skip
"""The columns of a stored row; what they have is for the next merge."""
ROW: Final = "row"
PROBLEM: Final = "problem"

_MICROS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class GroupMerge:
    """What all groups of a merge share; it can be pickled, as compiled classes cannot.

    `definition` is JSON; `truncations` are encoded, and `ring_delay` is in seconds. `erased`: the write time up to
    which they take what was stored before, in microseconds. `now` in seconds. `everything`: rows without changes are
    merged too. `early`: changes that a crash may take back are taken.
    """

    definition: str
    schemas: Mapping[bytes, SchemaEntry]
    truncations: bytes
    ring_delay: float
    erased: int | None
    now: int
    everything: bool
    early: bool = False

    def table(self) -> Table:
        """The definition."""
        return table_from_json(json.loads(self.definition))


def row_type(table: Table) -> Any:
    """The Arrow type of a visible row: the table's columns."""
    return pa.struct([field for field in _renderer(table).schema if field.name not in HIDDEN])


def result_schema(table: Table) -> Any:
    """The Arrow schema of what `merge_group` gives."""
    return STATE.append(pa.field(ROW, row_type(table))).append(pa.field(PROBLEM, pa.string()))


def merge_group(work: GroupMerge, changes: Any, stored: Any) -> Any:
    """All stored rows of a group's partitions after its changes, in `result_schema`, and the changes that fail.

    `changes` are records as tailrace_spark.streams.assign has them, `stored` rows of STATE.
    """
    begin_task()
    table = work.table()
    renderer = _renderer(table)
    letters: list[DeadLetter] = []
    delivered: list[Delivered] = []
    for piece in pieces(changes.sort_by(BY_OFFSET), work.schemas, early=work.early):
        letters += piece.dead_letters
        delivered += [change for change in piece.changes if _is_of(table, change)]
    delivered = list(truncate_batch(decode_truncations(work.truncations), delivered, work.ring_delay).left)
    partitions = stored_partitions(stored_rows(stored))
    try:
        result = _merged(work, renderer, partitions, delivered)
    except DecodeError:
        good = mergeable(delivered, renderer, letters)
        result = _merged(work, renderer, stored_partitions(stored_rows(stored)), good)
    tokens = dict(zip(stored["key"].to_pylist(), stored["token"].to_pylist(), strict=True))
    tokens |= {row.change.key: row.change.token for row in delivered if row.change.key is not None}
    state = _state(stored, result, tokens)
    return pa.concat_tables([_with_rows(state, renderer, work.now), _problems(letters, table)])


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
    erased = EVERYTHING if work.erased == EVERYTHING.written else Deletion(work.erased, work.erased // _MICROS)
    remaining, result = erase_partitions(renderer, partitions, erased, work.now)
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
