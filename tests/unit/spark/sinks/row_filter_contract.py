"""The contract of sinks that filter rows by columns outside the key: readers see the rows of SELECT that match.

The oracle is SELECT by the rules of row state, filtered by a condition in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Final
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace_schemas.change import Change
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.shaping.conditions import split_conditions
from tailrace_spark.sinks.protocol import SweepingSink, write_here
from tests.properties import examples
from tests.support.expiry import SECOND, Time, expiring
from tests.unit.spark.cassandra import Log, truncate
from tests.unit.spark.sinks.contract import piece
from tests.unit.spark.sinks.merging_contract import Followed, Row, selected
from tests.unit.tables import table

SALES: Final = table(
    {"k": "text"}, {"c": "int"}, {}, {"total": "int", "name": "text", "tags": "set<text>"},
    keyspace="shop", name="sales", table_id=UUID(int=21),
)  # fmt: skip
ITEMS: Final = table({"id": "int"}, regular={"price": "decimal"}, keyspace="shop", name="items", table_id=UUID(int=22))
COLUMNS: Final = ("k", "c", "total", "name")
LOG: Final = Log(SALES)
Matches = Callable[[int | None, str | None], bool]
"""Whether a row matches by its `total` and its `name`."""
CONDITIONS: Final[dict[str, Matches]] = {
    "row.total > 1": lambda total, _: total is not None and total > 1,
    "row.total <> 1 AND row.name IS NOT NULL": lambda total, name: total not in (None, 1) and name is not None,
    "NOT (row.total = 1 OR row.name = 'a')": lambda total, name: total not in (None, 1) and name not in (None, "a"),
    "row.name LIKE '%b_' OR row.total IN (0, 2)": lambda total, name: (name or "")[-2:-1] == "b" or total in (0, 2),
}

times, numbers = st.integers(1, 8), st.integers(1, 3)
written_values = st.fixed_dictionaries(
    {},
    optional={
        "total": st.sampled_from([0, 1, 2, 3, None]),
        "name": st.sampled_from(["a", "abc", "xbz", None]),
        "tags": st.sampled_from([{"t": True}, {"=": None, "u": True}, None]),
    },
)


def _written(op: str, number: int, time: int, values: dict[str, object], expires: int | None) -> Change:
    change: Change = getattr(LOG, op)(("k",), (number,), time, **values)
    return change if expires is None else _expiring(change, expires)


def _expiring(change: Change, expires: int) -> Change:
    """The same with the end of all that can have one: tombstones stay."""
    ending = expiring(change, expires)
    cells = tuple(old if old.value is None else new for old, new in zip(change.cells, ending.cells, strict=True))
    return replace(ending, cells=cells)


one_change = st.one_of(
    st.builds(
        _written, st.sampled_from(["insert", "update", "update"]), numbers, times, written_values,
        st.sampled_from([None, None, 150, 250]),
    ),
    st.builds(lambda number, time: LOG.delete(("k",), (number,), time), numbers, times),
    st.builds(lambda time: LOG.delete_partition(("k",), time), times),
    st.builds(lambda low, high, time: LOG.delete_range(("k",), (low,), (high,), time), numbers, numbers, times),
)  # fmt: skip


def filtered(sink: SweepingSink, where: str) -> SweepingSink:
    """The sink, asked for rows."""
    rows, changes = split_conditions({"shop.*": where}, "stream.where")
    filtering = sink.capabilities.filtering
    assert filtering is not None
    assert not changes
    filtering.filter_rows(rows)
    return sink


def write(followed: Followed, where: str, *changes: Change, time: Time | None = None) -> Summary:
    """One micro-batch through a filtering sink of its own, as a new process has it."""
    with closing(filtered(followed.open(time), where)) as sink:
        return write_here(sink, [piece(changes)])


def rows_of(followed: Followed) -> list[Row]:
    """What readers see of SALES."""
    return followed.rows(SALES, *COLUMNS)


class RowFilterContract:
    """Give `followed` and `another` as MergingContract has them."""

    @pytest.mark.promise("shaping.row-filter")
    @pytest.mark.slow
    def test_a_row_comes_with_all_its_columns_and_goes(self, followed: Followed) -> None:
        """A row alone, then merged as bytes, then by its state."""
        seen: list[list[Row]] = []
        with closing(filtered(followed.open(), "row.total >= 2")) as sink:
            for change in (
                LOG.insert(("k",), (1,), 1, name="ann", total=1),
                LOG.update(("k",), (1,), 2, total=2),
                LOG.update(("k",), (1,), 3, name="bob"),
                LOG.update(("k",), (1,), 4, total=None),
                LOG.update(("k",), (1,), 5, total=7),
                LOG.update(("k",), (1,), 6, total=1),
                LOG.update(("k",), (1,), 7, total=3),
                LOG.delete(("k",), (1,), 8),
            ):
                assert write_here(sink, [piece([change])]) == Summary(1, 1, 0)
                seen.append(followed.rows(SALES, "name", "total"))
        assert seen == [[], [("ann", 2)], [("bob", 2)], [], [("bob", 7)], [], [("bob", 3)], []]

    @pytest.mark.promise("shaping.row-filter")
    def test_a_row_has_nothing_of_a_row_that_does_not_match(self, followed: Followed) -> None:
        """Of one batch, in which rows that are hidden have columns that others lack; all are merged as bytes."""
        changes = [LOG.insert(("k",), (number,), 1, name="hidden", total=number % 2) for number in (2, 4)]
        changes += [LOG.insert(("k",), (number,), 1, total=1) for number in (1, 3, 5)]
        write(followed, "row.total = 1", *changes)
        assert rows_of(followed) == [("k", number, 1, None) for number in (1, 3, 5)]

    @pytest.mark.promise("shaping.row-filter")
    @pytest.mark.slow
    def test_rows_merged_as_bytes_match_and_do_not(self, followed: Followed) -> None:
        """In one batch, some new and others stored: no row has another one's values."""
        where = "row.total BETWEEN 10 AND 19"
        write(followed, where, *(LOG.insert(("k",), (number,), 1, name="old", total=number) for number in range(30)))
        assert [row[1] for row in rows_of(followed)] == list(range(10, 20))
        write(followed, where, *(LOG.update(("k",), (number,), 2, total=39 - number) for number in range(20, 40)))
        changes = [LOG.insert(("k",), (number,), 1, name="old", total=number) for number in range(30)]
        changes += [LOG.update(("k",), (number,), 2, total=39 - number) for number in range(20, 40)]
        expected = selected(SALES, changes, *COLUMNS)
        assert rows_of(followed) == [row for row in expected if 10 <= (row[2] or 0) <= 19]  # type: ignore[operator]  # ints
        assert ("k", 25, 14, "old") in expected

    @pytest.mark.promise("shaping.row-filter")
    @pytest.mark.slow
    @settings(
        max_examples=examples(4), deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
    )  # fmt: skip
    @given(
        st.lists(st.lists(one_change, min_size=1, max_size=5), min_size=1, max_size=4),
        st.sampled_from(sorted(CONDITIONS)),
    )
    def test_readers_see_the_rows_of_select_that_match(
        self, another: Callable[[], Followed], batches: list[list[Change]], where: str
    ) -> None:
        """In any order of write times, while values expire; a deletion may come before what it covers."""
        followed, time, arrived = another(), Time(), list[Change]()
        with closing(filtered(followed.open(time), where)) as sink:
            for number, batch in enumerate(batches):
                time.now = 100 + 100 * number
                write_here(sink, [piece(batch)])
                arrived += batch
                time.now += 60
                sink.sweep()
                expected = selected(SALES, arrived, *COLUMNS, now=time.now)
                matching = [row for row in expected if CONDITIONS[where](row[2], row[3])]  # type: ignore[arg-type]  # as typed
                assert matching == rows_of(followed)

    @pytest.mark.promise("shaping.row-filter")
    def test_what_expires_is_shown_by_its_own_filter_beside_another_stream(self, followed: Followed) -> None:
        """Which has no filter, and follows another table of the store."""
        where, time = "row.total > 1", Time(100)
        hidden = LOG.insert(("k",), (1,), 1, total=0), _expiring(LOG.update(("k",), (1,), 1, name="a"), 200)
        shown = LOG.insert(("k",), (2,), 1, name="b"), _expiring(LOG.update(("k",), (2,), 1, total=5), 200)
        write(followed, where, *hidden, *shown, time=time)
        assert rows_of(followed) == [("k", 2, 5, "b")]
        time.now = 300

        with closing(followed.open(time)) as beside:
            following = beside.capabilities.following
            assert following is not None
            following.follow(lambda table: table.id == ITEMS.id)
            assert beside.sweep() == 0
        assert rows_of(followed) == [("k", 2, 5, "b")]
        with closing(filtered(followed.open(time), where)) as sink:
            assert sink.sweep() == 2
        assert rows_of(followed) == []

    @pytest.mark.slow
    def test_a_filtered_batch_delivered_again_changes_nothing(self, followed: Followed) -> None:
        changes = [LOG.insert(("k",), (number,), 1, total=number) for number in range(4)]
        changes += [LOG.update(("k",), (0,), 2, total=2), LOG.update(("k",), (3,), 2, total=0)]
        write(followed, "row.total > 1", *changes)
        before = followed.everything()
        assert write(followed, "row.total > 1", *changes).rows == 0
        assert followed.everything() == before
        assert [row[1] for row in rows_of(followed)] == [0, 2]

    @pytest.mark.promise("shaping.row-filter")
    @pytest.mark.slow
    def test_a_truncation_takes_rows_that_are_shown_and_others(self, followed: Followed) -> None:
        time, moment = Time(), 50 * SECOND
        old = [LOG.insert(("k",), (number,), moment - 1, total=number) for number in range(4)]
        write(followed, "row.total > 1", *old, time=time)
        later = LOG.update(("k",), (0,), moment + 1, name="later")
        write(followed, "row.total > 1", truncate(SALES, "a", moment), later, time=time)
        assert rows_of(followed) == []
        write(followed, "row.total > 1", LOG.update(("k",), (0,), moment + 2, total=5), time=time)
        assert rows_of(followed) == [("k", 0, 5, "later")]

    @pytest.mark.promise("shaping.row-filter")
    @pytest.mark.slow
    def test_a_column_that_goes_leaves_the_filter_in_force(self, followed: Followed) -> None:
        """A store may then render all of its rows again."""
        changes = [LOG.insert(("k",), (number,), 10, name="n", total=number) for number in range(4)]
        write(followed, "row.total > 1", *changes)
        dropped_columns = table({"k": "text"}, dropped={"name": ("text", 20)}).dropped
        remaining_columns = tuple(column for column in SALES.regular if column.name != "name")
        narrower = replace(SALES, regular=remaining_columns, dropped=dropped_columns)
        write(followed, "row.total > 1", Log(narrower).update(("k",), (0,), 30, total=9))
        assert followed.rows(narrower, "c", "total") == [(0, 9), (2, 2), (3, 3)]

    def test_a_table_that_the_filter_does_not_fit_holds_up_no_other(self, followed: Followed) -> None:
        done = write(followed, "row.total > 1", Log(ITEMS).insert((1,), (), 1), LOG.insert(("k",), (1,), 1, total=2))
        assert done.rows == 1
        assert "no column row.total; it may ask for row.price" in done.refused["shop.items"]
        assert rows_of(followed) == [("k", 1, 2, None)]
