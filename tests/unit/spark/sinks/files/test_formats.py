"""Rows of a Parquet file: the same by columns as by way of the changes' records, in their order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace_schemas.change import Change
from tailrace_spark.sinks.arrow.schema import arrow_schema
from tailrace_spark.sinks.arrow.types import delta_schema
from tailrace_spark.sinks.changelog.sink import OutgoingRecord, RecordForm
from tailrace_spark.sinks.files.formats import parquet_rows, rows_of_records
from tests.properties import examples
from tests.support.every_type import TABLE, row_changes
from tests.unit.spark.sinks.arrow.whole_changes import delivered, whole_changes

SCHEMA = arrow_schema(TABLE)
NUMBERS = arrow_schema(TABLE, times=False)
FORM = RecordForm(TABLE)


def records_of(changes: Sequence[Change]) -> list[OutgoingRecord]:
    return [
        OutgoingRecord(change.record_id, change.change, change.assignment, FORM) for change in delivered(list(changes))
    ]


@pytest.mark.slow
@given(st.lists(whole_changes() | row_changes(), min_size=1, max_size=6))
@settings(max_examples=examples(24))
def test_rows_are_those_of_the_records_in_their_order(changes: list[Change]) -> None:
    records = records_of(changes)
    rows = parquet_rows(records, TABLE, SCHEMA, delta_schema(SCHEMA))
    rows.validate()
    expected = rows_of_records(records, SCHEMA)
    assert rows.schema == expected.schema
    # As numbers, since Python has no times beyond the year 9999; as text, since a NaN equals no other.
    assert repr(rows.cast(NUMBERS).to_pylist()) == repr(expected.cast(NUMBERS).to_pylist())
