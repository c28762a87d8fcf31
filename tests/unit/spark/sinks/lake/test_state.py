"""The state of a batch's partitions, read aside and in parts: what comes of it is what one read at its time gives."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tailrace_schemas.change import Change
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.streams import Assignment
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId
from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tailrace_spark.sinks.lake.fast_rows import bucket_of
from tailrace_spark.sinks.lake.state import SCHEMA, StateTable, read_now, reading, stored_rows
from tailrace_spark.sinks.protocol import write_here
from tests.support.expiry import expiring
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.delta.stores import FollowedDelta
from tests.unit.tables import table

FOLLOWED = table({"k": "int"}, {"c": "int"}, None, {"v": "text", "n": "int", "tags": "set<text>"})
STATICS = table({"k": "int"}, {"c": "int"}, {"s": "text"}, {"v": "text"}, name="statics")
BUCKETS = 5
FEW, MANY = 1, 1_000_000


def local(path: Path, worth_a_part: int = MANY) -> FollowedDelta:
    settings = DeltaSinkSettings(path=str(path), mode="current", buckets=BUCKETS)
    return FollowedDelta(settings, worth_a_part=worth_a_part)


def write(followed: FollowedDelta, changes: Sequence[Change]) -> int:
    stream = Assignment(1, bytes(16))
    piece = Piece(tuple(Delivered(RecordId("t", 0, at), change, stream) for at, change in enumerate(changes)))
    with closing(followed.open()) as sink:
        return write_here(sink, [piece]).rows


def batches() -> list[list[Change]]:
    """Rows made, again, changed beside new ones, that expire, deleted one by one and all at once, truncated."""
    log, other = Log(FOLLOWED), Log(STATICS)
    new = [log.insert((k,), (c,), 1, v=f"{k}", n=c) for k in range(40) for c in range(2)]
    changed = [log.update((k,), (0,), 2, v="changed", n=None if k % 7 == 0 else k) for k in range(0, 45, 2)]
    return [
        [*new[:40], other.static((1,), 1, s="S")],
        new[20:],
        new,
        [*changed, log.update((1,), (0,), 2, tags={"x": True}), other.insert((1,), (1,), 2, v="v")],
        [expiring(log.insert((k,), (9,), 3, v="x"), 1_000) for k in range(5)] + [log.update((6,), (0,), 1, v="late")],
        [log.delete((k,), (1,), 4) for k in range(9)]
        + [log.delete_partition((10,), 4), log.delete_partition((99,), 4)],
        [log.delete_range((11,), (0,), (1,), 5), other.static((2,), 5, s="T"), other.delete_partition((1,), 5)],
        [log.insert((k,), (50 + k,), 6, v="again") for k in range(12)],
    ]


@pytest.mark.slow
def test_parts_of_a_batch_come_to_what_one_does(tmp_path: Path) -> None:
    one, parts = local(tmp_path / "one"), local(tmp_path / "parts", FEW)
    for batch in batches():
        wanted = write(one, batch)
        assert write(parts, batch) == wanted
        assert parts.everything() == one.everything()


@pytest.mark.slow
def test_rows_that_are_there_are_put_in_place_also_where_another_part_has_none(tmp_path: Path) -> None:
    log = Log(FOLLOWED)
    halves: tuple[list[int], list[int]] = ([], [])
    for k in range(20):
        halves[bucket_of(k.to_bytes(4, "big"), BUCKETS) >= BUCKETS // 2].append(k)
    for there, new in (halves, halves[::-1]):
        followed = local(tmp_path / f"{there[0]}", FEW)
        write(followed, [log.insert((k,), (0,), 1, v="before") for k in there])
        both = [log.update((k,), (0,), 2, v="after") for k in there] + [log.insert((k,), (0,), 2, v="new") for k in new]
        write(followed, both)
        wanted = [*((k, "after") for k in there), *((k, "new") for k in new)]
        assert sorted(followed.rows(FOLLOWED, "k", "v")) == sorted(wanted)


@pytest.mark.parametrize(("worth", "expected"), [(FEW, 2), (MANY, 1)])
def test_each_partition_is_read_once_and_whole(tmp_path: Path, worth: int, expected: int) -> None:
    followed = local(tmp_path)
    write(followed, batches()[0] + batches()[1])
    state = StateTable(followed.store.open(f"{followed.name(FOLLOWED)}-state"))
    wanted = sorted(state.all_keys())[::2]
    with reading(state, [*wanted, b"unknown"], BUCKETS, worth) as known:
        found = [(sorted(keys), sorted(part.at)) for keys, part in known]
    assert len(found) == expected
    assert sorted(key for keys, _ in found for key in keys) == sorted([*wanted, b"unknown"])
    for keys, rows in found:
        assert {key for key, _ in rows} == {*keys} - {b"unknown"}
    [whole] = read_now(state, wanted, BUCKETS).all()
    assert sorted(row for _, rows in found for row in rows) == sorted(whole.at)


def test_what_fails_aside_fails_the_batch(tmp_path: Path) -> None:
    """It is written as if nothing had been, once the store answers."""
    followed = local(tmp_path)
    first, second = batches()[:2]
    write(followed, first)
    before = followed.everything()
    hidden = list(tmp_path.glob("*-state/bucket=[0-9]*/*.parquet"))
    for path in hidden:
        path.rename(path.with_suffix(".away"))
    with pytest.raises(ServiceError, match="state"):
        write(followed, second)
    for path in hidden:
        path.with_suffix(".away").rename(path)
    assert followed.everything() == before
    assert write(followed, second) > 0


def test_stored_rows_may_have_more_than_an_array_of_arrow_holds() -> None:
    """2 GiB, here of nulls: these have bytes in the array, and none in what comes of it."""
    octets, count = 64 << 20, 33
    offsets = pa.py_buffer(np.array([0, octets], np.int32))
    large = pa.Array.from_buffers(pa.binary(), 1, [pa.py_buffer(b"\0"), offsets, pa.py_buffer(bytes(octets))])
    keys = pa.array([str(number).encode() for number in range(count)])
    columns = {name: pa.nulls(count, SCHEMA.field(name).type) for name in SCHEMA.names}
    columns |= {"key": keys, "clustering": keys, "state": pa.chunked_array([large] * count)}
    assert stored_rows(pa.table(columns)).states == [None] * count
