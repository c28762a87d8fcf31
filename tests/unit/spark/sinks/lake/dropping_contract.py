"""What a lake's sinks must do when they drop what they have made: that alone goes, whatever dies meanwhile."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from itertools import count
from typing import Any, Protocol, cast
from uuid import UUID

import pytest

from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_spark.sinks.lake.dead_letters import lake_sink
from tailrace_spark.sinks.lake.store import LakeStore, Number
from tailrace_spark.sinks.lake.visible_rows import BUCKET
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import PLAIN, Topic

OTHER = replace(PLAIN, name="other", id=UUID(int=8))
SUFFIXED = replace(PLAIN, name="plain-2", id=UUID(int=9))
"""Whose name a second table of PLAIN would have."""
MODES = pytest.mark.parametrize("mode", ["history", "current"])
LETTERS = "tailrace.dead-letters"


class Lake(Protocol):
    """A lake that is empty at first."""

    @property
    def store(self) -> LakeStore:
        """Of another process."""


class DyingAtDrops:
    """A store whose process dies before, or behind, a number of drops."""

    def __init__(self, store: LakeStore, steps: int) -> None:
        self._store = store
        self._left = steps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def drop(self, name: str) -> None:
        self._step()
        self._store.drop(name)
        self._step()

    def _step(self) -> None:
        if self._left == 0:
            raise ServiceError("the process is dead")
        self._left -= 1


def write(store: LakeStore, mode: Any, *tables: Table, topic: str = "t") -> None:
    """Two rows of each table, and a dead letter; `topic` begins the name of its topic."""
    with closing(lake_sink(store, mode, 2, 0.0)) as sink:
        for of in tables:
            places, log = Topic(f"{topic}.shop.{of.name}"), Log(of)
            sink.write([places.piece(log.insert((1,), (), 5, v="a"), log.insert((2,), (), 5, v="b"), letters=1)])


def drop(store: LakeStore, mode: Any, *tables: Table) -> list[str]:
    with closing(lake_sink(store, mode, 2, 0.0)) as sink:
        droppable = sink.capabilities.droppable
        assert droppable is not None
        return list(droppable.drop(tables))


def rows(store: LakeStore, name: str) -> int:
    stored = store.open(name)
    assert stored is not None
    column = "offset" if "offset" in stored.schema.names else BUCKET
    return len(stored.read([column], Number(column).above(-1)))


def require_tables(store: LakeStore, mode: str, *tables: Table) -> None:
    """These, their states, and the dead letters."""
    expected = {f"shop.{of.name}" for of in tables} | {LETTERS}
    if mode == "current":
        expected |= {f"shop.{of.name}-state" for of in tables}
    assert {name for name in store.names() if store.open(name) is not None} == expected


class DroppingContract:
    """Give `lake` as a fixture."""

    @pytest.mark.promise("subscription.target-dropped")
    @MODES
    def test_tables_go_and_those_of_others_stay(self, lake: Lake, mode: str) -> None:
        write(lake.store, mode, PLAIN, OTHER, SUFFIXED)
        assert drop(lake.store, mode, PLAIN) == ["shop.plain"]
        require_tables(lake.store, mode, OTHER, SUFFIXED)
        assert drop(lake.store, mode, PLAIN) == []
        assert rows(lake.store, "shop.other") == 2
        write(lake.store, mode, PLAIN)
        assert rows(lake.store, "shop.plain") == 2
        require_tables(lake.store, mode, PLAIN, OTHER, SUFFIXED)

    @pytest.mark.promise("subscription.target-dropped")
    @MODES
    def test_a_drop_that_dies_is_gone_on_with(self, lake: Lake, mode: str) -> None:
        for step in count():
            write(lake.store, mode, PLAIN, OTHER)
            dying = cast("LakeStore", DyingAtDrops(lake.store, step))
            try:
                drop(dying, mode, PLAIN, OTHER)
            except ServiceError:
                drop(lake.store, mode, PLAIN, OTHER)
                require_tables(lake.store, mode)
            else:
                require_tables(lake.store, mode)
                assert step == (4 if mode == "history" else 8)
                return

    def test_tables_of_the_other_mode_stay(self, lake: Lake) -> None:
        write(lake.store, "history", PLAIN)
        assert drop(lake.store, "current", PLAIN) == []
        require_tables(lake.store, "history", PLAIN)

    def test_nothing_is_dropped_of_an_empty_lake(self, lake: Lake) -> None:
        assert drop(lake.store, "history", PLAIN) == drop(lake.store, "current", PLAIN) == []
