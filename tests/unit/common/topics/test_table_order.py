"""Of several tables that had one name the later one counts as announced last, by the DDL of all hosts."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.history.events import EventKind, SchemaEvent, Subject, encode_event, event_key
from tailrace_common.topics.schemas import SchemaReader
from tailrace_common.topics.table_order import in_order, places
from tailrace_schemas.avro import Encoder, schema_records
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table
from tests.support.partition import Partition
from tests.unit.tables import table

X, Y, Z = (
    table({"k": "int"}, {}, {}, {"v": "int"}, table_id=UUID(text))
    for text in (
        "2be43760-e57f-11f1-8599-73518cff440e",
        "1b255f4d-ef25-11ef-8e5c-9d0d1c0b8f00",  # of an earlier time
        "f47ac10b-58cc-4372-a567-0e02b2c3d479",  # of none
    )
)
CREATED, DROPPED = EventKind.CREATED, EventKind.DROPPED
Told = tuple[str, EventKind, Table, int]
"""Host, what happened, to which table, and when."""


def later(announced: Iterable[Table], events: Iterable[Told], *, epochs: bool = False) -> list[UUID]:
    """The ids of the tables in the order in which a reader has them, from definitions announced in that order."""
    definitions = [(value_id, value) for one in announced for (value_id, value), _ in [records_of(one)]]
    told = [
        (event_key(host, event), encode_event(host, event))
        for offset, (host, kind, of, when) in enumerate(events)
        for event in [
            SchemaEvent(
                position=Position(1, 1, offset), kind=kind, subject=Subject.TABLE, keyspace=of.keyspace, name=of.name,
                table=of, written=0 if epochs else when, metadata=when if epochs else None,
            )
        ]
    ]  # fmt: skip
    with SchemaReader({}, "p", ordered=True, partition=Partition(definitions), ddl=Partition(told)) as reader:
        reader.refresh()
        return [entry.table.id for entry in sorted(reader.values(), key=lambda entry: entry.announced)]


def records_of(one: Table) -> list[tuple[bytes, bytes]]:
    return schema_records(Encoder(one, "p"), "p.ks.t")


@pytest.mark.promise("sinks.later-table")
@pytest.mark.parametrize("epochs", [False, True])
@pytest.mark.parametrize("other", [Y, Z])
def test_a_host_that_lags_says_nothing_new(other: Table, epochs: bool) -> None:
    """It tells of the table that was dropped, and announces it, long after the others told of the DROP."""
    ahead = [("a", CREATED, X, 1), ("a", DROPPED, X, 5), ("a", CREATED, other, 6)]
    lagging = [("b", CREATED, X, 1), ("b", DROPPED, X, 5), ("b", CREATED, other, 6)]
    for behind in range(4):
        assert later([X, other, X], [*ahead, *lagging[:behind]], epochs=epochs) == [X.id, other.id]


def test_a_table_that_nobody_else_saw_is_not_the_later_one_for_being_told_of_late() -> None:
    """A node that joined knows the present table only; one that lags tells of a table that came and went before."""
    joined = [("a", CREATED, Y, 6)]
    lagging = [("b", CREATED, X, 1), ("b", DROPPED, X, 5)]
    assert later([Y, X], [*joined, *lagging]) == [X.id, Y.id]


def test_a_table_that_is_created_again_with_its_id_is_the_later_one() -> None:
    first = [("a", CREATED, X, 1), ("a", DROPPED, X, 2), ("a", CREATED, Y, 3)]
    assert later([X, Y], first) == [X.id, Y.id]
    again = [*first, ("a", DROPPED, Y, 4), ("a", CREATED, X, 5)]
    assert later([X, Y], again) == [Y.id, X.id]
    assert later([X, Y], [*again, *(("b", *one[1:]) for one in first)]) == [Y.id, X.id]


def test_without_ddl_the_table_announced_first_is_the_earlier_one() -> None:
    """Tables that were there before the agents have no statement."""
    assert later([X, Y, X], []) == [X.id, Y.id]
    assert later([Y, X, Y], [("a", DROPPED, Y, 9)]) == [Y.id, X.id]


def test_what_a_reader_gave_before_stays_in_order() -> None:
    """A sink notes when a table was announced; no later reading may put an earlier table's beyond that."""
    (x_id, x), _ = records_of(X)
    (y_id, y), _ = records_of(Y)
    partition = Partition([(x_id, x), (y_id, y)])
    with SchemaReader({}, "p", ordered=True, partition=partition, ddl=Partition([])) as reader:
        reader.refresh()
        noted = reader[y_id].announced
        for _ in range(3):
            partition.append((x_id, x))
            reader.refresh()
            assert reader[x_id].announced < noted == reader[y_id].announced


def test_foreign_records_among_the_ddl_say_nothing() -> None:
    (x_id, x), _ = records_of(X)
    (y_id, y), _ = records_of(Y)
    foreign = [(b"k", value) for value in (b"", b"[]", b'{"subject": "table", "kind": "created"}', b"\xff")]
    with SchemaReader(
        {}, "p", ordered=True, partition=Partition([(x_id, x), (y_id, y)]), ddl=Partition(foreign)
    ) as reader:
        reader.refresh()
        assert reader[x_id].announced < reader[y_id].announced


statements = st.lists(st.tuples(st.sampled_from([X.id, Y.id, Z.id]), st.integers(1, 50)), min_size=1)


@given(statements, st.permutations([X.id, Y.id, Z.id]))
def test_the_last_statement_decides_whatever_was_announced_first(
    told: list[tuple[UUID, int]], order: list[UUID]
) -> None:
    last = {table_id: (False, when) for table_id, when in sorted(told, key=lambda one: one[1])}
    known = [table_id for table_id in order if table_id in last]
    found = in_order({table_id: offset for offset, table_id in enumerate(known)}, last)
    assert [last[table_id][1] for table_id in found] == sorted(when for _, when in last.values())


def test_a_later_table_that_was_announced_first_counts_from_behind_all_of_the_earlier_one() -> None:
    """As where an agent that is ahead tells of both before one that lags."""
    earlier, later = UUID(int=9), UUID(int=1)
    last = {earlier: (False, 1), later: (False, 2)}
    assert places([(later, 0), (earlier, 5), (earlier, 7)], last) == {earlier: (5, 8), later: (8, None)}
