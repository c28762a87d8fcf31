"""Delta tables that follow: the contract of merging sinks in a directory, crashes, and what stands there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tailrace_common.settings import load_settings
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import DroppedColumn
from tailrace_spark.sinks.arrow.types import FIRST_DAY, LAST_MOMENT
from tailrace_spark.sinks.delta.store import DeltaStore
from tailrace_spark.sinks.lake.current import LakeCurrent
from tailrace_spark.sinks.lake.state import StateTable
from tailrace_spark.sinks.lake.visible_rows import LakeRowRenderer, rows_of
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.registry import open_sink
from tests.held import package
from tests.support.shop import PLAIN, WIDER
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import is_cut_off, piece
from tests.unit.spark.sinks.delta.stores import DeltaCurrentInTasks, FollowedDelta, section
from tests.unit.spark.sinks.lake.current_contract import LakeCurrentContract, batches, require_select
from tests.unit.spark.sinks.lake.row_filter_contract import LakeRowFilterContract
from tests.unit.spark.sinks.merging_contract import WIDE, selected, write
from tests.unit.tables import table


def local(root: Path, **more: object) -> FollowedDelta:
    """A directory as a sink of its own has it."""
    return FollowedDelta(section(root, **{"mode": "current", "buckets": 4, **more}))


@pytest.mark.promise("delta.current")
class TestDeltaCurrent(LakeCurrentContract, LakeRowFilterContract):
    sink = "delta"
    server_name = f"{package('deltalake')}, a directory"
    kind: type[FollowedDelta] = FollowedDelta

    @pytest.fixture
    def another(self, tmp_path: Path) -> Callable[[], FollowedDelta]:
        numbers = count()
        return lambda: self.kind(section(tmp_path / str(next(numbers)), mode="current", buckets=4))


@pytest.mark.promise("delta.current", "stream.execution")
@pytest.mark.slow
class TestDeltaCurrentInTasks(TestDeltaCurrent):
    sink = "delta, in tasks"
    kind = DeltaCurrentInTasks


@pytest.mark.promise("delta.current")
@pytest.mark.parametrize(
    "again",
    [pytest.param(True, marks=pytest.mark.long, id="it comes again"), pytest.param(False, id="it never comes again")],
)
@pytest.mark.slow
def test_a_crash_between_any_two_steps_heals(tmp_path: Path, again: bool) -> None:
    """Also where the batch does not come again, and another one of the same tables does: of what is in the state."""
    for step in count():
        followed = local(tmp_path / str(step), buckets=1)
        first, second, third = batches()
        write(followed, *first)
        died = is_cut_off(followed.open(dies_after=step), piece(second))
        if again:
            write(followed, *second)
            require_select(followed, [*first, *second], f"died after {step} steps")
            write(followed, *third)
            require_select(followed, [*first, *second, *third], f"died after {step} steps")
        else:
            _shows_its_state(followed)
        if not died:
            assert step == 14  # two commits of each table, and three before for the one that gets a column
            return


def _shows_its_state(followed: FollowedDelta) -> None:
    """Something else is written of both tables; what is then read is all that the states have."""
    write(followed, Log(PLAIN).insert((77,), (), 1, v="other"), Log(WIDE).insert((77,), (1,), 1, v="other"))
    for of in (PLAIN, WIDE):
        name = followed.name(of)
        entry = StateTable(followed.store.open(f"{name}-state")).entry()
        assert entry is not None
        found = {(row["__key"], row["__clustering"]): row for row in followed.table(of).to_pyarrow_table().to_pylist()}
        shown, state = (
            LakeRowRenderer(entry.definition, entry.buckets, entry.names),
            StateTable(followed.store.open(f"{name}-state")),
        )
        wanted = {}
        for number in range(entry.buckets):
            rows = rows_of(shown, state.bucket(number), 0)
            arrow = shown.arrow(list(rows.values())).to_pylist()
            wanted.update({(row["__key"], row["__clustering"]): row for row in arrow})
        assert found == wanted


def test_a_batch_is_one_commit_of_each_table(tmp_path: Path) -> None:
    followed, log = local(tmp_path), Log(PLAIN)
    write(followed, log.insert((1,), (), 1, v="a"))
    with closing(followed.open()) as sink:
        write_here(sink, [piece([log.update((n,), (), 2, w=n)]) for n in range(5)])
    tables = [DeltaTable(f"{tmp_path}/shop.plain{part}") for part in ("", "-state")]
    assert [(one.version(), one.history(1)[0]["operation"]) for one in tables] == [(2, "WRITE"), (2, "WRITE")]


@pytest.mark.slow
def test_rows_that_are_there_are_put_in_their_place(tmp_path: Path) -> None:
    """Whether others of the batch are new, or all; and new ones stand beside them."""
    followed, log = local(tmp_path), Log(PLAIN)
    new = [log.insert((number,), (), 1, v="new") for number in range(4)]
    changed = [log.update((number,), (), 2, v="changed") for number in range(4)]
    for batch in ([new[0]], [new[1]], [changed[0], new[2]], [changed[1]], [new[3], new[1]]):
        write(followed, *batch)
    assert followed.rows(PLAIN, "id", "v") == selected(PLAIN, [*new, *changed[:2]], "id", "v")


class _Between(DeltaStore):
    """A store whose next commit of a state is followed by something else before anything else is done."""

    def __init__(self, followed: FollowedDelta, then: Callable[[], object]) -> None:
        super().__init__(followed.settings)
        self._then: list[Callable[[], object]] = [then]

    def commit_staged(self, name: str, *args: Any) -> None:
        super().commit_staged(name, *args)
        if name.endswith("-state") and self._then:
            self._then.pop()()


@pytest.mark.slow
@pytest.mark.promise("delta.current")
@pytest.mark.parametrize("widens", [False, True], ids=["the same columns", "a column more"])
def test_what_another_writer_has_shown_is_not_shown_twice(tmp_path: Path, widens: bool) -> None:
    """Such as a replay of dead letters beside a stream: it goes on with a state that is not shown yet."""
    followed, log = local(tmp_path), Log(PLAIN)
    write(followed, log.insert((1,), (), 1, v="a"))
    mine = piece([Log(WIDER).insert((2,), (), 2, x="mine") if widens else log.insert((2,), (), 2, v="mine")])
    store = _Between(followed, lambda: write(followed, log.insert((3,), (), 3, v="other")))
    with closing(LakeCurrent(store, 4, clock=lambda: 0)) as sink:
        with nullcontext() if widens else pytest.raises(ServiceError, match="another writer came first"):
            write_here(sink, [mine])
        write_here(sink, [mine])
    assert followed.rows(PLAIN, "id") == [(1,), (2,), (3,)]


@pytest.mark.promise("delta.current")
def test_what_another_writer_is_yet_to_show_is_its_own(tmp_path: Path) -> None:
    """A table is made anew as a column goes, while another writer is between its two commits."""
    followed, log = local(tmp_path), Log(WIDER)
    write(followed, log.insert((1,), (), 1, v="a", x="x"))
    committed, shown = Event(), Event()

    def wait_for_the_first() -> None:
        committed.set()
        shown.wait(60)

    def other() -> None:
        changes = [piece([narrow.insert((3,), (), 3, v="other")])]
        with closing(LakeCurrent(_Between(followed, wait_for_the_first), 4, clock=lambda: 0)) as sink:
            try:
                write_here(sink, changes)
            except ServiceError:
                write_here(sink, changes)

    def begin_the_other() -> None:
        thread.start()
        committed.wait(60)

    narrow = Log(replace(PLAIN, dropped=(DroppedColumn(WIDER.regular[2], 2),)))
    thread = Thread(target=other)
    store = _Between(followed, begin_the_other)
    mine = [piece([narrow.insert((2,), (), 3, v="mine")])]
    with closing(LakeCurrent(store, 4, clock=lambda: 0)) as sink:
        try:
            write_here(sink, mine)
        except ServiceError:
            shown.set()
            thread.join()
            write_here(sink, mine)
        shown.set()
        thread.join()
    assert followed.rows(PLAIN, "id", "v") == [(1, "a"), (2, "mine"), (3, "other")]


def test_columns_have_the_sources_types(tmp_path: Path) -> None:
    followed = local(tmp_path)
    of = table(
        {"k": "timestamp"},
        regular={
            "A b": "int", "a b": "int", "moment": "timestamp", "d": "date", "t": "time", "n": "decimal", "u": "addr",
            "m": "map<text, int>", "l": "list<timestamp>", "s": "set<uuid>", "f": "frozen<tuple<int, text>>",
        },
        keyspace="shop",
        name="types",
    )  # fmt: skip
    log = Log(of)
    values = {
        "A b": 1, "a b": 2, "moment": 2**62, "d": -(2**31), "t": 5, "n": "1.10", "u": {"=": None, "street": "S"},
        "m": {"=": None, "x": 1}, "l": {"=": None, 1: 7}, "f": {"f0": 1, "f1": "x"},
    }  # fmt: skip
    write(followed, log.insert((1_500,), (), 1, **values))
    found = followed.table(of).to_pyarrow_table()
    types = {field.name: str(field.type) for field in found.schema if not field.name.startswith("__")}
    assert types == {
        "k": "timestamp[us, tz=UTC]", "A_x20_b": "int32", "_x61__x20__x62_": "int32",
        "moment": "timestamp[us, tz=UTC]",
        "d": "date32[day]", "t": "int64", "n": "string", "m": "list<element: struct<key: string, value: int32>>",
        "u": "struct<street: string, zip: int32, tags: list<element: string>>",
        "l": "list<element: timestamp[us, tz=UTC]>", "s": "list<element: string>",
        "f": "struct<f0: int32, f1: string>",
    }  # fmt: skip
    assert found["moment"].cast(pa.int64()).to_pylist() == [LAST_MOMENT * 1000]
    assert found["d"].cast(pa.int32()).to_pylist() == [FIRST_DAY]
    rest = found.select(["A_x20_b", "_x61__x20__x62_", "t", "n", "m", "u", "f", "s"]).to_pylist()
    assert rest == [
        {"A_x20_b": 1, "_x61__x20__x62_": 2, "t": 5, "n": "1.10", "m": [{"key": "x", "value": 1}], "s": None,
         "u": {"street": "S", "zip": None, "tags": None}, "f": {"f0": 1, "f1": "x"}},
    ]  # fmt: skip


def test_the_registry_opens_what_the_mode_says(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(f'[sink.x]\ntype = "delta"\npath = "{tmp_path}"\nmode = "current"\nbuckets = 3\n')
    with closing(open_sink("x", load_settings(path, {}).sink["x"], "p")) as sink:
        sink.reach()
        write_here(sink, [piece([Log(PLAIN).insert((1,), (), 1, v="a")])])
    followed = local(tmp_path)
    assert followed.rows(PLAIN, "id", "v") == [(1, "a")]
    entry = StateTable(followed.store.open("shop.plain-state")).entry()
    assert entry is not None
    assert entry.buckets == 3
