"""The write time that a mutation's head tells of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.commitlog.model import Mutation, PartitionUpdate, Row
from tailrace.commitlog.times import oldest_write
from tailrace_schemas.change import Marker
from tests.unit.commitlog.written import Stats, encode
from tests.unit.mutations import deletion
from tests.unit.tables import table

TABLE = table({"id": "text"})


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.sampled_from([None, 7, 1 << 40]), st.binary(max_size=300))
def test_it_is_the_one_that_was_written(written: int, epoch: int | None, key: bytes) -> None:
    """Any time, any key, with a table's epoch and without."""
    row = Row(clustering=(), marker=Marker(written))
    update = PartitionUpdate(table=TABLE, key=key, items=(row,), metadata_epoch=epoch)
    payload = encode(Mutation(updates=(update,)), Stats(timestamp=written), [((), ())])
    assert oldest_write(payload, 8 if epoch is None else 9) == written


def test_what_says_nothing() -> None:
    """An empty update, a version that nobody knows, and bytes that end before."""
    empty = encode(Mutation(updates=(PartitionUpdate(table=TABLE, key=b"k"),)), Stats(), [((), ())])
    assert oldest_write(empty, 8) is None
    assert oldest_write(deletion(TABLE, b"k"), 5) is None


@pytest.mark.parametrize("end", range(1 + 16 + 1 + 1 + 1))
def test_a_cut_anywhere(end: int) -> None:
    """None, and no error: the reader of the mutation will say it."""
    assert oldest_write(deletion(TABLE, b"k")[:end], 7) is None
