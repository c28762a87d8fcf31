"""Counters: contexts read, shards by clock, tombstones whatever their time, and the same in any order."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.change import Change, Deletion
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec
from tailrace_schemas.errors import TruncatedError
from tailrace_spark.rowstate.cells import shards
from tailrace_spark.rowstate.codec import decode_state, encode_state
from tailrace_spark.rowstate.row import RowState, merge
from tailrace_spark.rowstate.visible import VisibleColumns, visible
from tests.unit.spark.changes import absorbed, deletions
from tests.unit.spark.rowstate import counters
from tests.unit.spark.rowstate.counters import COUNTERS, KINDS, Shard, context, counted


def total(*changes: Change, covering: Deletion | None = None) -> object:
    shown = visible(absorbed(*changes), COUNTERS, covering)
    return None if shown is None else shown["n"]


def model(changes: list[Change], covering: Deletion | None) -> int | None:
    """From all contexts that no deletion covers: of each shard the one that Cassandra would keep, added up."""
    floors = [change.deletion.written for change in changes if change.deletion is not None]
    floor = max([*floors, -1 if covering is None else covering.written], default=-1)
    cells = [cell for change in changes for cell in change.cells if cell.written > floor]
    if not cells or any(cell.value is None for cell in cells):
        return None
    best: dict[bytes, tuple[int, int, int]] = {}
    for cell in cells:
        value = cell.value or b""
        header = [int.from_bytes(value[at : at + 2], "big", signed=True) for at in range(2, 2 + 2 * value[1], 2)]
        decoded: Any = codec(CqlType("counter")).decode(value)
        for index, shard in enumerate(decoded):
            kind = 2 if index - 0x8000 in header else 1 if index in header else 0
            name, rank = shard["id"], (kind, shard["clock"], shard["count"])
            best[name] = max(best.get(name, rank), rank)
    return sum(count for _, _, count in best.values()) if best else None


@pytest.mark.slow
@given(st.lists(counters.changes, max_size=6), st.one_of(st.none(), deletions), st.randoms(use_true_random=False))
def test_any_order_counts_what_all_writes_together_say(
    changes: list[Change], covering: Deletion | None, random: Random
) -> None:
    expected = model(changes, covering)
    state = absorbed(*changes)
    shuffled = changes + changes[: len(changes) // 2]
    random.shuffle(shuffled)
    assert absorbed(*shuffled) == state
    assert total(*changes, covering=covering) == expected
    assert decode_state(encode_state(state)) == state
    if covering is not None:
        state.shadow(covering)
        late = absorbed(*shuffled)
        late.shadow(covering)
        assert late == state
        assert (visible(state, COUNTERS) or {}).get("n") == expected


@given(*[st.lists(counters.changes, max_size=4)] * 3)
def test_merging_counters_is_a_join(first: list[Change], second: list[Change], third: list[Change]) -> None:
    a, b, c = absorbed(*first), absorbed(*second), absorbed(*third)
    assert merge(a, b) == merge(b, a)
    assert merge(a, merge(b, c)) == merge(merge(a, b), c)
    assert merge(a, a) == a == merge(a, RowState())


def test_shards_add_up_in_64_bits() -> None:
    assert total(counted(1, Shard(1, 5, 2**63 - 1)), counted(1, Shard(2, 5, 1))) == -(2**63)


def test_a_state_keeps_one_shard_of_each_id() -> None:
    state = absorbed(*(counted(at, Shard(at % 2, at, at)) for at in range(100)))
    assert len(state.columns[b"n"].cells) == 2


def test_counters_have_no_times() -> None:
    assert VisibleColumns(COUNTERS).times(absorbed(counted(1, Shard(1, 5, 3)))) == {}


def test_local_shards_to_be_cleared_are_remote_ones() -> None:
    assert shards(context(Shard(1, 2, 3, "local"), clear_local=True)) == shards(context(Shard(1, 2, 3, "remote")))


@pytest.mark.parametrize("kind", KINDS)
def test_every_cut_is_refused(kind: str) -> None:
    whole = context(Shard(1, 2, 3, kind), Shard(2, -(2**63), 2**63 - 1, kind))
    assert len(shards(whole)) == 2
    assert shards(b"") == []
    for end in range(1, len(whole)):
        if end not in (len(whole) - 32, len(whole) - 64):
            with pytest.raises(TruncatedError):
                shards(whole[:end])
