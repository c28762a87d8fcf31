"""Counters for tests: contexts as Cassandra writes them, changes of counted rows, and what they add up to."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from tailrace_schemas.change import Cell, Change, Deletion, Op
from tests.unit.spark.changes import column
from tests.unit.tables import table

COUNTERS = replace(
    table({"p": "int"}, {"c": "int"}, {"t": "counter"}, {"n": "counter"}), flags=frozenset({"compound", "counter"})
)
KINDS = ("remote", "local", "global")


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard; `name` is the first byte of its id."""

    name: int
    clock: int
    count: int
    kind: str = "global"


def context(*shards: Shard, clear_local: bool = False) -> bytes:
    """CounterContext: the header's elements name local and global shards by index, remote ones have none."""
    elements = [
        (index if shard.kind == "local" else index - 0x8000).to_bytes(2, "big", signed=True)
        for index, shard in enumerate(shards)
        if shard.kind != "remote"
    ]
    head = (-len(elements) if clear_local else len(elements)).to_bytes(2, "big", signed=True) + b"".join(elements)
    return head + b"".join(bytes([one.name]) * 16 + _long(one.clock) + _long(one.count) for one in shards)


def _long(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


def counted(at: int, *shards: Shard) -> Change:
    """What one write of the counter `n` logs."""
    return _change(cells=(Cell(column(COUNTERS, "n"), None, at, None, None, context(*shards)),))


def uncounted(at: int, local: int = 10) -> Change:
    """DELETE n FROM ...: a tombstone."""
    return _change(cells=(Cell(column(COUNTERS, "n"), None, at, None, local, None),))


def row_deleted(at: int, local: int = 10) -> Change:
    """DELETE FROM ...: the row's deletion."""
    return _change(op=Op.DELETE, deletion=Deletion(at, local))


def _change(op: Op = Op.UPDATE, deletion: Deletion | None = None, cells: tuple[Cell, ...] = ()) -> Change:
    return Change(
        op=op, table=COUNTERS, token=0, key=b"\0\0\0\1", clustering=(b"\0\0\0\1",), deletion=deletion, cells=cells
    )


times = st.integers(0, 4)
shards = st.builds(Shard, st.integers(0, 1), st.integers(-1, 2), st.integers(-2, 2), st.sampled_from(KINDS))
counts = st.builds(lambda at, parts: counted(at, *parts), times, st.lists(shards, max_size=3))
changes = st.one_of(
    counts, counts, counts, st.builds(uncounted, times, st.integers(10, 11)), st.builds(row_deleted, times)
)
