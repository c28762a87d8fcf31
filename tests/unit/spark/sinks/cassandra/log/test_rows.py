"""Updates to rows of a log table: what each operation shows, how a mutation is split, that copies are alike."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.change import Change, ColumnDeletion, Deletion, Op
from tailrace_schemas.cql.types import CqlType, parse_type
from tailrace_schemas.cql.values import codec
from tailrace_schemas.digest import change_digest, mutation_digest
from tailrace_schemas.errors import UnsupportedError
from tailrace_schemas.position import Position
from tailrace_schemas.streams import Assignment
from tailrace_spark.batch.delivery import Delivered, RecordId
from tailrace_spark.sinks.cassandra.log.rows import LogRow, log_rows, time_uuid, write_times
from tests.unit.spark.cassandra import Log
from tests.unit.spark.changes import PLAIN, column, row_changes
from tests.unit.tables import table

STREAM = bytes(15) + b"\x01"
TABLE = table(
    {"pk": "int"}, {"ck": "int"}, {"s": "text"},
    {"v": "int", "w": "int", "m": "map<int, text>", "c": "set<int>", "l": "list<int>", "u": "addr"},
)  # fmt: skip
LOG = Log(TABLE)
META = ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no", "cdc$operation", "cdc$end_of_batch")
AT = 1_000_000


def update(*changes: Change, generations: dict[int, bytes] | None = None) -> list[Delivered]:
    """One mutation's update, as it comes: indices and digests set, each with the streams of its times."""
    found = []
    for index, change in enumerate(changes):
        assert change.source is not None
        placed = replace(
            change, source=replace(change.source, index=index, count=len(changes), position=Position(1, 5, 100))
        )
        placed = replace(placed, digest=change_digest(placed))
        others = tuple(
            (time, Assignment(1, (generations or {}).get(time, STREAM))) for time in sorted(write_times(placed))
        )
        found.append(Delivered(RecordId("t.ks.t", 0, index), placed, None, -1, others))
    return found


def rows(*changes: Change) -> list[LogRow]:
    return log_rows(update(*changes))


def shown(row: LogRow) -> tuple[object, ...]:
    """(write time, number in the batch, operation, whether it ends the batch, all else as plain values)."""
    number = int.from_bytes(row.values["cdc$batch_seq_no"], "big")
    rest: dict[str, object] = {}
    for name, value in row.values.items():
        if name not in META:
            rest[name] = codec(TYPES[name]).decode(value)
    return row.written, number, row.values["cdc$operation"][0], "cdc$end_of_batch" in row.values, rest


TYPES = {
    **{column.name: column.type for column in (*TABLE.key, *TABLE.columns)},
    **{f"cdc$deleted_{column.name}": CqlType("boolean") for column in TABLE.columns},
    "cdc$ttl": CqlType("bigint"),
    "m": parse_type("frozen<map<int, text>>"),
    "l": parse_type("frozen<map<timeuuid, int>>"),
    "cdc$deleted_elements_m": parse_type("frozen<set<int>>"),
    "cdc$deleted_elements_c": parse_type("frozen<set<int>>"),
    "cdc$deleted_elements_l": parse_type("frozen<set<timeuuid>>"),
    "cdc$deleted_elements_u": parse_type("frozen<set<smallint>>"),
}
K = {"pk": 1, "ck": 2}
NOTHING = {"street": None, "zip": None, "tags": None}
"""A user type of which no field got a value, as ScyllaDB's log has it."""


@pytest.mark.promise("log-tables.guide")
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (LOG.insert((1,), (2,), AT, v=5), [(AT, 0, 2, True, {**K, "v": 5})]),
        (LOG.insert((1,), (2,), AT), [(AT, 0, 2, True, K)]),
        (LOG.update((1,), (2,), AT, v=5, w=None), [(AT, 0, 1, True, {**K, "v": 5, "cdc$deleted_w": True})]),
        (LOG.static((1,), AT, s="x"), [(AT, 0, 1, True, {"pk": 1, "s": "x"})]),
        (LOG.delete((1,), (2,), AT), [(AT, 0, 3, True, K)]),
        (LOG.delete_partition((1,), AT), [(AT, 0, 4, True, {"pk": 1})]),
        (LOG.delete_range((1,), (2,), (7,), AT, "(]"), [(AT, 0, 6, False, K), (AT, 1, 7, True, {"pk": 1, "ck": 7})]),
        (LOG.delete_range((1,), (2,), (7,), AT, "[)"), [(AT, 0, 5, False, K), (AT, 1, 8, True, {"pk": 1, "ck": 7})]),
        (LOG.delete_range((1,), (), (2,), AT), [(AT, 0, 5, False, {"pk": 1}), (AT, 1, 7, True, K)]),
        (
            LOG.update((1,), (2,), AT, m={"=": None, 1: "a"}),
            [(AT, 0, 1, True, {**K, "m": [{"key": 1, "value": "a"}], "cdc$deleted_m": True})],
        ),
        (
            LOG.insert((1,), (2,), AT, m={"=": None, 1: "a"}),
            [(AT, 0, 2, True, {**K, "m": [{"key": 1, "value": "a"}], "cdc$deleted_m": True})],
        ),
        (
            LOG.update((1,), (2,), AT, m={3: "b", 1: None}),
            [(AT, 0, 1, True, {**K, "m": [{"key": 3, "value": "b"}], "cdc$deleted_elements_m": [1]})],
        ),
        (LOG.update((1,), (2,), AT, m={1: None}), [(AT, 0, 1, True, {**K, "cdc$deleted_elements_m": [1]})]),
        (LOG.update((1,), (2,), AT, m=None), [(AT + 1, 0, 1, True, {**K, "cdc$deleted_m": True})]),
        (
            LOG.update((1,), (2,), AT, c={5: True, 4: None}),
            [(AT, 0, 1, True, {**K, "c": [5], "cdc$deleted_elements_c": [4]})],
        ),
        (
            LOG.update((1,), (2,), AT, u={"zip": 9, "street": None}),
            [(AT, 0, 1, True, {**K, "u": {"street": None, "zip": 9, "tags": None}, "cdc$deleted_elements_u": [0]})],
        ),
        (
            LOG.update((1,), (2,), AT, u={"zip": None}),
            [(AT, 0, 1, True, {**K, "u": NOTHING, "cdc$deleted_elements_u": [1]})],
        ),
        (LOG.update((1,), (2,), AT, u=None), [(AT + 1, 0, 1, True, {**K, "u": NOTHING, "cdc$deleted_u": True})]),
        (
            LOG.insert((1,), (2,), AT, m={1: "a"}, v=3),
            [(AT, 0, 2, False, {**K, "v": 3}), (AT, 1, 1, True, {**K, "m": [{"key": 1, "value": "a"}]})],
        ),
    ],
)
def test_one_change(change: Change, expected: list[tuple[object, ...]]) -> None:
    assert [shown(row) for row in rows(change)] == expected


@pytest.mark.promise("log-tables.guide")
def test_a_mutation_is_one_batch_for_each_write_time() -> None:
    """Static row, inserts, updates, then deletions of rows, ranges, the partition, as ScyllaDB puts them."""
    found = rows(
        LOG.delete_partition((1,), AT - 9),
        LOG.update((1,), (3,), AT, v=1),
        LOG.insert((1,), (4,), AT, v=2),
        LOG.delete_range((1,), (5,), (6,), AT),
        LOG.delete((1,), (7,), AT),
        LOG.static((1,), AT, s="x"),
        LOG.update((1,), (8,), AT + 1, v=3),
    )
    assert [shown(row)[:4] for row in found] == [
        (AT - 9, 0, 4, True),
        (AT, 0, 1, False), (AT, 1, 2, False), (AT, 2, 1, False), (AT, 3, 3, False), (AT, 4, 5, False),
        (AT, 5, 7, True),
        (AT + 1, 0, 1, True),
    ]  # fmt: skip
    assert [shown(row)[4] for row in found][1] == {"pk": 1, "s": "x"}
    times = {row.values["cdc$time"] for row in found}
    assert len(times) == 3
    assert len({time[8:] for time in times}) == 1


def test_a_field_that_was_added_since_is_kept() -> None:
    """The log table's type has it: that follows from all definitions."""
    change = LOG.update((1,), (2,), AT, u={"zip": 9})
    added = replace(change.cells[0], path=b"\0\3", value=b"new")
    [row] = rows(replace(change, cells=(*change.cells, added)))
    null = b"\xff\xff\xff\xff"
    assert row.values["u"] == null + b"\0\0\0\4\0\0\0\x09" + null + b"\0\0\0\3new"


def test_every_write_time_has_the_stream_of_its_generation() -> None:
    change = LOG.update((1,), (2,), AT, v=5, w=6)
    v, w = change.cells
    older = replace(change, cells=(v, replace(w, written=AT - 5)))
    other = bytes(15) + b"\x11"
    found = log_rows(update(older, generations={AT - 5: other}))
    assert [(row.written, row.stream, row.values["cdc$stream_id"]) for row in found] == [
        (AT - 5, other, other),
        (AT, STREAM, STREAM),
    ]
    with pytest.raises(UnsupportedError, match="no stream is known for write time 1000000"):
        log_rows([replace(one, others=()) for one in update(change)])


def test_the_time_is_the_write_time_with_the_mutations_digest() -> None:
    digest = mutation_digest([b"\xff" * 16])
    time = UUID(bytes=time_uuid(1_606_390_225_588_947, digest))
    assert (time.version, time.variant) == (1, "specified in RFC 4122")
    assert (time.time - 0x01B21DD213814000, time.time % 10) == (16_063_902_255_889_470, 0)
    assert time.int & (1 << 62) - 1 == int.from_bytes(digest[:8], "big") & (1 << 62) - 1
    assert str(UUID(bytes=time_uuid(-12_219_292_800_000_000, bytes(16)))) == "00000000-0000-1000-8000-000000000000"
    for beyond in (-12_219_292_800_000_001, 2**62, 2**63 - 1):
        with pytest.raises(UnsupportedError, match="fits into no time UUID"):
            time_uuid(beyond, digest)


def test_no_write_time_is_behind_the_last_one() -> None:
    """A collection's deletion counts as written a microsecond later, where there is one."""
    change, m = LOG.insert((1,), (2,), 5), column(TABLE, "m")
    for written, time in ((10, 11), (2**63 - 2, 2**63 - 1), (2**63 - 1, 2**63 - 1)):
        deletion = ColumnDeletion(m, Deletion(written, 0))
        assert write_times(replace(change, column_deletions=(deletion,))) == {5, time}


@given(st.integers(-(10**16), 10**17), st.binary(min_size=16, max_size=16))
def test_time_uuids_ascend_with_write_times_and_give_them_back(written: int, digest: bytes) -> None:
    time = UUID(bytes=time_uuid(written, digest))
    assert (time.time - 0x01B21DD213814000) // 10 == written
    assert time.version == 1


@pytest.mark.promise("log-tables.same-rows")
@pytest.mark.slow
@given(st.lists(row_changes(), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_copies_and_repetitions_give_the_same_rows_each_with_a_key_of_its_own(
    changes: list[Change], randomness: random.Random
) -> None:
    """Whatever order and number they arrive in, and whichever host they come from."""
    source = LOG.insert((1,), (2,), 1).source
    whole = update(*[replace(change, source=source) for change in changes if _says_something(change)])
    expected = log_rows(whole)
    keys = [(row.values["cdc$time"], row.values["cdc$batch_seq_no"]) for row in expected]
    assert len(set(keys)) == len(keys)
    ends = [row.values["cdc$time"] for row in expected if "cdc$end_of_batch" in row.values]
    assert sorted(ends) == sorted({time for time, _ in keys})
    copies = [
        replace(
            one,
            change=replace(one.change, source=replace(one.change.source, host="other", position=Position(1, 99, 1))),
        )
        for one in whole
        if one.change.source is not None
    ]
    shuffled = [*whole, *copies]
    randomness.shuffle(shuffled)
    assert log_rows(shuffled) == expected


@pytest.mark.promise("log-tables.whole-change")
@given(row_changes())
def test_nothing_of_a_change_is_left_out(change: Change) -> None:
    """What its rows say, taken apart again, is what it says: each cell with its write time and TTL, once."""
    cells = {(cell.column.name, cell.path): cell for cell in change.cells}
    change = replace(change, source=LOG.insert((1,), (2,), 1).source, cells=tuple(cells.values()))
    if not _says_something(change):
        return
    found = rows(change)
    assert {row.written for row in found} == write_times(change)
    said = [fact for row in found for fact in _facts(row)]
    assert len(set(said)) == len(said)
    assert set(said) == _expected(change)


Fact = tuple[str, bytes | None, int, int, bytes | None]
"""(column, path, write time, TTL, value), or (operation, None, write time, TTL, None)."""


def _expected(change: Change) -> set[Fact]:
    facts: set[Fact] = {
        (
            cell.column.name, cell.path, cell.written,
            0 if cell.value is None else cell.ttl or 0, cell.value,
        )
        for cell in change.cells
    }  # fmt: skip
    facts |= {(f"{gone.column.name}!", None, gone.deletion.written + 1, 0, None) for gone in change.column_deletions}
    if change.marker is not None:
        facts.add(("insert", None, change.marker.written, change.marker.ttl or 0, None))
    if change.deletion is not None:
        facts.add(("delete", None, change.deletion.written, 0, None))
    return facts


def _facts(row: LogRow) -> list[Fact]:
    ttl = int.from_bytes(row.values.get("cdc$ttl", b""), "big")
    at, values = row.written, row.values
    found: list[Fact] = []
    if values["cdc$operation"] in (b"\x02", b"\x03"):
        found.append(({2: "insert", 3: "delete"}[values["cdc$operation"][0]], None, at, ttl, None))
    for name in ("v", "w", "s"):
        if name in values:
            found.append((name, None, at, ttl, values[name]))
        if f"cdc$deleted_{name}" in values:
            found.append((name, None, at, 0, None))
    for name in ("l", "sl"):
        if f"cdc$deleted_{name}" in values:
            found.append((f"{name}!", None, at, 0, None))
        parts = list(_parts(values.get(name)))
        found += [(name, path, at, ttl, value) for path, value in zip(parts[::2], parts[1::2], strict=True)]
        found += [(name, path, at, 0, None) for path in _parts(values.get(f"cdc$deleted_elements_{name}"))]
    return found


def _parts(collection: bytes | None) -> Iterator[bytes]:
    """The elements of a serialized collection; those of a map are keys and values in turn."""
    at = 4
    while collection is not None and at < len(collection):
        size = int.from_bytes(collection[at : at + 4], "big")
        yield collection[at + 4 : at + 4 + size]
        at += 4 + size


def _says_something(change: Change) -> bool:
    return bool(change.marker or change.deletion or change.cells or change.column_deletions)


def test_truncations_have_no_rows_and_snapshots_no_place() -> None:
    truncation = Change(op=Op.TRUNCATE, table=PLAIN, token=1, key=None, deletion=Deletion(AT, 1))
    assert log_rows([Delivered(RecordId("t", 0, 0), truncation)]) == []
    assert write_times(truncation) == set()
    with pytest.raises(UnsupportedError, match="rows of a snapshot"):
        rows(replace(LOG.update((1,), (2,), AT, v=5), op=Op.READ))
