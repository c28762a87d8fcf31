"""Changes of a batch by table id."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import Delivered, RecordId
from tailrace_spark.merge.by_table import group_by_table
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

FIRST = replace(table({"k": "int"}, {}, None, {"a": "int"}), id=UUID(int=1))
WIDER = replace(table({"k": "int"}, {}, None, {"a": "int", "b": "int"}), id=UUID(int=1))
OTHER = replace(table({"k": "int"}, {}, None, {"a": "int"}, name="other"), id=UUID(int=2))


def delivered(of: Table, offset: int) -> Delivered:
    return Delivered(RecordId("t", 0, offset), Log(of).insert((offset,), (), 1, a=1))


def test_groups_definitions_of_one_table_in_their_order() -> None:
    changes = [delivered(of, offset) for offset, of in enumerate((FIRST, WIDER, OTHER, FIRST, FIRST))]
    assert group_by_table(changes) == {
        FIRST.id: [changes[0], changes[1], changes[3], changes[4]],
        OTHER.id: [changes[2]],
    }


def test_adds_to_a_former_result() -> None:
    changes = [delivered(of, offset) for offset, of in enumerate((FIRST, OTHER, FIRST))]
    tables = group_by_table(changes[:1])
    assert group_by_table(changes[1:], tables) is tables
    assert tables == {FIRST.id: [changes[0], changes[2]], OTHER.id: [changes[1]]}


def test_no_changes_give_no_groups() -> None:
    assert group_by_table([]) == {}
