"""What a task of `merged` makes of changes and stored rows, however the changes are cut and repeated."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest

from tailrace_schemas.avro import Encoder, SchemaEntry
from tailrace_schemas.change import Change, Deletion
from tailrace_spark.rowstate.truncation import TruncationState
from tailrace_spark.tasks.merged import GroupMerge, merge_group, result_schema
from tailrace_spark.tasks.partition_writer import TaskSchemas
from tests.unit.spark.cassandra import Log
from tests.unit.spark.published import records_of, schemas_of
from tests.unit.tables import table

ORDERS = table(
    {"shop": "int"}, {"id": "int"}, regular={"amount": "int"}, static={"name": "text"}, keyspace="shop", name="orders"
)
ENCODER = Encoder(ORDERS, "p")
LOG = Log(ORDERS)
AT, NOW = 1_700_000_000_000_000, 1_700_000_100
CHANGES = [
    *[LOG.insert((1,), (number,), AT, amount=number) for number in range(5)],
    LOG.static((1,), AT, name="first"),
    LOG.update((1,), (0,), AT + 2, amount=10),
    LOG.update((1,), (0,), AT + 1, amount=99),
    LOG.delete((1,), (1,), AT + 1),
    LOG.insert((2,), (7,), AT, amount=7),
    LOG.delete_partition((2,), AT + 1),
    LOG.static((3,), AT, name="alone"),
    LOG.insert((1,), (1,), AT, amount=5),
]
ROWS = [
    {"shop": 1, "id": 0, "name": "first", "amount": 10},
    {"shop": 1, "id": 2, "name": "first", "amount": 2},
    {"shop": 1, "id": 3, "name": "first", "amount": 3},
    {"shop": 1, "id": 4, "name": "first", "amount": 4},
    {"shop": 3, "id": None, "name": "alone", "amount": None},
]


def schemas() -> Mapping[bytes, SchemaEntry]:
    return TaskSchemas.of(schemas_of(ENCODER, "p.shop.orders"))


def work(erased: Deletion | None = None, *, everything: bool = False) -> GroupMerge:
    return GroupMerge(ORDERS, schemas(), TruncationState(), 30.0, erased, NOW, everything)


def records(changes: Sequence[Change | bytes]) -> Any:
    values = [change if isinstance(change, bytes) else ENCODER.value(change) for change in changes]
    return records_of("p.shop.orders", values)


def nothing() -> Any:
    return result_schema(ORDERS).empty_table()


def shown(rows: Any) -> list[dict[str, Any]]:
    return [row for row in rows["row"].to_pylist() if row is not None]


@pytest.mark.promise("spark.merged")
def test_rows_are_those_of_select() -> None:
    rows = merge_group(work(), records(CHANGES), nothing())
    assert rows.schema == result_schema(ORDERS)
    assert sorted(shown(rows), key=str) == sorted(ROWS, key=str)
    assert set(rows["problem"].to_pylist()) == {None}


@pytest.mark.slow
@pytest.mark.promise("spark.merged")
@pytest.mark.parametrize("seed", range(8))
def test_they_are_the_same_however_changes_are_cut_repeated_and_ordered(seed: int) -> None:
    random = Random(seed)
    mixed = random.sample([*CHANGES, *random.sample(CHANGES, 5)], len(CHANGES) + 5)
    rows = nothing()
    while mixed:
        count = random.randint(1, 5)
        rows = merge_group(work(), records(mixed[:count]), rows)
        mixed = mixed[count:]
    whole = merge_group(work(), records(CHANGES), nothing())
    assert rows.equals(whole)
    assert merge_group(work(), records(CHANGES), rows).equals(whole)


def test_a_truncation_hides_what_is_older_of_all_rows() -> None:
    rows = merge_group(work(), records(CHANGES), nothing())
    after = merge_group(work(Deletion(AT + 1, 0), everything=True), records([]), rows)
    assert shown(after) == [{"shop": 1, "id": 0, "name": None, "amount": 10}]


def test_a_record_that_is_no_change_is_a_problem_with_its_place() -> None:
    rows = merge_group(work(), records([*CHANGES, b"rubbish"]), nothing())
    [problem] = [text for text in rows["problem"].to_pylist() if text is not None]
    assert problem.startswith(f"p.shop.orders, partition 0, offset {len(CHANGES)}: ")
    assert len(shown(rows)) == len(ROWS)


def test_what_groups_are_told_travels_to_executors() -> None:
    """Compiled classes cannot be pickled: this runs on compiled code too."""
    sent = pickle.loads(pickle.dumps(work(Deletion(AT, 0))))  # noqa: S301 - our own bytes
    expected = merge_group(work(Deletion(AT, 0)), records(CHANGES), nothing())
    assert merge_group(sent, records(CHANGES), nothing()).equals(expected)
