"""The contract of a lake's tables that follow: that of merging sinks, and what is of commits and modes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

import pytest

from tailrace_schemas.change import Change
from tailrace_schemas.errors import ServiceError
from tailrace_spark.sinks.lake.current import LakeCurrent
from tailrace_spark.sinks.protocol import write_here
from tests.support.shop import PLAIN, WIDER
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import Topic, deliver
from tests.unit.spark.sinks.contract import piece
from tests.unit.spark.sinks.hostile import FIELDS, NAMES, row
from tests.unit.spark.sinks.lake.stores import FollowedLake, overtaken
from tests.unit.spark.sinks.merging_contract import (
    WIDE,
    Followed,
    MergingContract,
    StoppedWriterContract,
    selected,
    write,
)
from tests.unit.tables import table


def batches() -> list[list[Change]]:
    """Rows made, changed, moved by statics and deleted, a column added, in two tables."""
    plain, wide, log = Log(PLAIN), Log(WIDE), Log(WIDER)
    return [
        [plain.insert((number,), (), 1, v=f"{number}") for number in range(9)]
        + [wide.insert((1,), (number,), 1, v="w") for number in range(3)],
        [plain.update((number,), (), 2, w=number) for number in range(0, 9, 2)]
        + [plain.delete((1,), (), 3), wide.static((1,), 2, s="S"), wide.delete((1,), (0,), 3)]
        + [wide.insert((2,), (1,), 1, v="w"), wide.delete_range((1,), (2,), (2,), 4), log.update((5,), (), 4, x="x")],
        [plain.delete((number,), (), 9) for number in range(3)]
        + [wide.delete_partition((1,), 9), wide.static((2,), 9, s="T"), wide.insert((1,), (2,), 10, v="again")],
    ]


def require_select(followed: Followed, changes: Sequence[Change], why: str = "") -> None:
    plain = [change for change in changes if change.table.name == "plain"]
    wide = [change for change in changes if change.table.name == "wide"]
    shown = [name for name in ("id", "v", "w", "x") if name in followed.columns(PLAIN)]
    assert followed.rows(PLAIN, *shown) == selected(WIDER, plain, *shown), why
    assert followed.rows(WIDE, "id", "c", "s", "v") == selected(WIDE, wide, "id", "c", "s", "v"), why


class LakeCurrentContract(MergingContract, StoppedWriterContract):
    """As for merging sinks; `another` makes FollowedLakes."""

    @pytest.mark.slow
    def test_a_step_that_fails_once_is_made_good_by_the_same_sink(self, another: Callable[[], FollowedLake]) -> None:
        for step in range(4):
            followed = another()
            first, second, _ = batches()
            write(followed, *first)
            with closing(LakeCurrent(followed.opened(step, revives=True), 2, clock=lambda: 0)) as sink:
                with pytest.raises(ServiceError):
                    write_here(sink, [piece(second)])
                write_here(sink, [piece(second)])
            require_select(followed, [*first, *second], f"step {step} failed")

    @pytest.mark.slow
    @pytest.mark.promise("delta.current")
    def test_of_two_that_write_at_a_time_one_fails_and_is_written_again(
        self, another: Callable[[], FollowedLake]
    ) -> None:
        """Neither's changes are lost: each knows only by its commit that the other was there."""
        followed, log = another(), Log(PLAIN)
        write(followed, log.insert((1,), (), 1, v="a"))
        store = overtaken(followed.opened(), lambda: write(followed, log.update((1,), (), 3, v="other")))
        sink = LakeCurrent(store, 2, clock=lambda: 0)
        mine = [piece([log.update((1,), (), 2, w=5)])]
        with pytest.raises(ServiceError, match="another writer came first"):
            write_here(sink, mine)
        write_here(sink, mine)
        assert followed.rows(PLAIN, "id", "v", "w") == [(1, "other", 5)]

    @pytest.mark.slow
    def test_compacting_in_between_changes_nothing(self, another: Callable[[], FollowedLake]) -> None:
        followed, done = another(), list[Change]()
        for batch in batches():
            write(followed, *batch)
            done += batch
            followed.compact()
        require_select(followed, done)

    @pytest.mark.promise("sinks.one-table-alone")
    def test_a_table_of_another_kind_is_not_written_over_and_the_others_go_on(
        self, another: Callable[[], FollowedLake]
    ) -> None:
        change, other = Log(PLAIN).insert((1,), (), 1, v="a"), Log(WIDE).insert((1,), (2,), 1, v="b")
        of_history = another()
        deliver(of_history.histories(), Topic().piece(change))
        summary = write(of_history, change, other)
        assert (list(summary.refused), summary.dead_letters) == (["shop.plain"], 1)
        assert "is a table of another kind" in summary.refused["shop.plain"]
        assert of_history.rows(WIDE, "id", "c", "v") == [(1, 2, "b")]

        of_rows = another()
        write(of_rows, change)
        summary = deliver(of_rows.histories(), Topic().piece(change, other))
        assert (list(summary.refused), summary.rows, summary.dead_letters) == (["shop.plain"], 1, 1)
        assert "shop.plain is a table of another kind" in summary.refused["shop.plain"]

    @pytest.mark.promise("lake.names")
    def test_names_that_differ_by_case_stay_what_they_are(self, another: Callable[[], FollowedLake]) -> None:
        """Whichever comes first has its own name, also once it is dropped; nothing later changes that."""
        followed = another()
        first, second = [
            table({"id": "int"}, regular=columns, keyspace="shop", name="plain")
            for columns in ({"v": "text"}, {"V": "int", "v": "text"})
        ]
        third = table({"id": "int"}, regular={"V": "int", "w": "int"}, dropped={"v": ("text", 20)}, keyspace="shop",
                      name="plain")  # fmt: skip
        write(followed, Log(first).insert((1,), (), 1, v="a"))
        write(followed, Log(second).update((1,), (), 2, V=5), Log(second).insert((2,), (), 2, v="b", V=6))
        assert followed.rows(PLAIN, "id", "v", "_x56_") == [(1, "a", 5), (2, "b", 6)]
        write(followed, Log(third).update((1,), (), 30, w=9))
        assert set(followed.columns(PLAIN)) == {"id", "_x56_", "w"}
        assert followed.rows(PLAIN, "id", "_x56_", "w") == [(1, 5, 9), (2, 6, None)]

    @pytest.mark.slow
    @pytest.mark.promise("lake.names")
    @pytest.mark.parametrize("what", [*NAMES, *FIELDS])
    def test_a_table_of_any_names_is_followed(self, another: Callable[[], FollowedLake], what: str) -> None:
        followed, of = another(), {**NAMES, **FIELDS}[what]
        changes = [*row(of), *row(of, 100)]
        for some in (changes[: len(changes) // 2], changes):
            assert write(followed, *some, Log(PLAIN).insert((1,), (), 1, v="a")).dead_letters == 0
        found = followed.rows(of, *followed.columns(of))
        names = [column.name for column in (*of.key, *of.static, *of.regular)]
        assert sorted(map(_values, found)) == sorted(map(_values, selected(of, changes, *names)))
        assert followed.rows(PLAIN, "id", "v") == [(1, "a")]


def _values(found: Sequence[object]) -> list[str]:
    """The values of a row, without the names that they have, sorted."""
    parts = [list(one.values()) if isinstance(one, dict) else [one] for one in found]
    return sorted(str(value) for part in parts for value in part)
