"""Places of rows that were read: the same for a row however often, and no place twice in one reading."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.tokens import partition
from tailrace_spark.snapshot.page_records import ROW_BITS
from tailrace_spark.snapshot.stream_rows import RoundPosition, distinct_offsets


def test_rounds_have_offsets_of_their_own_and_records_the_partition_of_their_slot_or_token() -> None:
    first, second = RoundPosition("t@1", 0, None), RoundPosition("t@1", 1, None)
    assert (first.first, first.end) == (0, second.first)
    assert second.end == 2 << ROW_BITS
    assert first.partition(-(2**63), 3) == 3
    assert RoundPosition("t", 0, 5).partition(2**62, 3) == partition(2**62, 5)


places = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=40)


@pytest.mark.promise("snapshots.once")
@given(places, st.integers(1, 7))
def test_rows_of_one_offset_get_the_next_ones_in_order(rows: list[tuple[int, int]], size: int) -> None:
    ordered = sorted(rows)
    table = pa.table(
        {
            "partition": pa.array([row[0] for row in ordered], pa.int32()),
            "offset": pa.array([row[1] for row in ordered], pa.int64()),
            "row": pa.array(range(len(ordered)), pa.int32()),
        }
    )
    result = [row for batch in distinct_offsets(table.to_batches(max_chunksize=size)) for row in batch.to_pylist()]
    taken: dict[int, int] = {}
    expected = []
    for number, (of, offset) in enumerate(ordered):
        taken[of] = max(offset, taken.get(of, -1) + 1)
        expected.append({"partition": of, "offset": taken[of], "row": number})
    assert result == expected
