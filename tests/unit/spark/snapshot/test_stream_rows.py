"""Places of rows that were read: the same for a row however often, and no place twice in one reading."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tailrace_spark.snapshot.stream_rows
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.tokens import partition
from tailrace_spark.snapshot.page import ROW_BITS
from tailrace_spark.snapshot.reading import UnreadableError
from tailrace_spark.snapshot.session import TableReading
from tailrace_spark.snapshot.settings import SnapshotSettings
from tailrace_spark.snapshot.stream_rows import RoundPosition, RoundReader, distinct_offsets
from tests.unit.tables import table


def test_rounds_have_offsets_of_their_own_and_records_the_partition_of_their_token() -> None:
    first, second = RoundPosition("t@1", 0, 5), RoundPosition("t@1", 1, 5)
    assert (first.first, first.end) == (0, second.first)
    assert second.end == 2 << ROW_BITS
    assert first.partition(2**62) == partition(2**62, 5)


@pytest.mark.promise("snapshot.unreadable")
@pytest.mark.parametrize(
    ("error", "final"), [(ServiceError("no page in time"), False), (UnreadableError("too many tombstones"), True)]
)
def test_a_slot_that_cannot_be_read_says_why_and_whether_it_ever_will_be(
    monkeypatch: pytest.MonkeyPatch, error: Exception, final: bool
) -> None:
    def reader(*_: object, **__: object) -> object:
        raise error

    monkeypatch.setattr(tailrace_spark.snapshot.stream_rows, "range_reader", reader)
    orders = table({"id": "int"}, name="orders", keyspace="shop")
    settings = SnapshotSettings(table="shop.orders", rows="changes")
    reading = TableReading(settings, orders, (5, 0), "dc1")
    rounds = RoundReader(reading, ((), ()), RoundPosition("t", 0, 5), ((0, 1),))
    batches = list(rounds.rows([pa.record_batch({"id": [0]})]))
    rows = [row for batch in batches for row in batch.select(["slot", "problem", "final"]).to_pylist()]
    assert rows == [{"slot": slot, "problem": str(error), "final": final} for slot in (0, 1)]


places = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=40)


@pytest.mark.promise("snapshots.once")
@given(places, st.integers(1, 7))
def test_rows_of_one_offset_get_the_next_ones_in_order(rows: list[tuple[int, int]], size: int) -> None:
    ordered = sorted(rows)
    records = pa.table(
        {
            "partition": pa.array([row[0] for row in ordered], pa.int32()),
            "offset": pa.array([row[1] for row in ordered], pa.int64()),
            "row": pa.array(range(len(ordered)), pa.int32()),
        }
    )
    result = [row for batch in distinct_offsets(records.to_batches(max_chunksize=size)) for row in batch.to_pylist()]
    taken: dict[int, int] = {}
    expected = []
    for number, (of, offset) in enumerate(ordered):
        taken[of] = max(offset, taken.get(of, -1) + 1)
        expected.append({"partition": of, "offset": taken[of], "row": number})
    assert result == expected
