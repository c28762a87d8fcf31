"""A task's records by the verdicts of their filters: those that pass, dead letters, and counts of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tailrace_schemas.avro import SchemaEntry
from tailrace_spark.batch.delivery import DeadLetter, RecordId
from tailrace_spark.shaping.task_filter_plan import FilterPlan, TableFilter, Verdict
from tailrace_spark.sinks.protocol import DriverOnlyError

_LETTERS: Final = pa.array([Verdict.NO_VALUE, Verdict.REFUSED], pa.int32())


def passing(
    records: pa.Table, verdicts: pa.Array, plan: FilterPlan, schemas: Mapping[bytes, SchemaEntry]
) -> tuple[pa.Table, tuple[DeadLetter, ...], Counter[str]]:
    """The records that pass, dead letters, and counts of what is left out by "keyspace.table".

    Raises DriverOnlyError where only the driver can tell what becomes of a record.
    """
    if pc.any(pc.equal(verdicts, Verdict.FOR_DRIVER.value)).as_py():
        raise DriverOnlyError("stream.where cannot be evaluated of some of its changes")
    counts: Counter[str] = Counter()
    left_out = records.filter(pc.equal(verdicts, Verdict.LEFT_OUT.value)).column("schema_id")
    for entry in left_out.combine_chunks().value_counts().to_pylist():
        counts[str(schemas[entry["values"]].table)] += entry["counts"]
    is_letter = pc.is_in(verdicts, value_set=_LETTERS)
    rows = records.filter(is_letter).select(["topic", "partition", "offset", "schema_id", "value"]).to_pylist()
    letters = tuple(_letter(row, plan.tables[row["schema_id"]]) for row in rows)
    return records.filter(pc.equal(verdicts, Verdict.PASSES.value)), letters, counts


def _letter(row: Mapping[str, Any], table_filter: TableFilter | str) -> DeadLetter:
    record_id = RecordId(row["topic"], row["partition"], row["offset"], row["schema_id"])
    reason = table_filter if isinstance(table_filter, str) else table_filter.no_value
    return DeadLetter(record_id, reason, row["value"])
