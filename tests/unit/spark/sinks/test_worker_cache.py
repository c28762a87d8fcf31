"""What worker processes keep open: few stores, those of the last tasks, and none is closed under a task."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from tailrace_spark.sinks.worker_cache import WorkerCache, close_idle


@dataclass(eq=True)
class Key:
    """As openers are: equal by value, and without a hash."""

    name: str
    options: dict[str, int] = field(default_factory=dict)


@dataclass(eq=False)
class Store:
    key: Key
    closed: int = 0

    def close(self) -> None:
        self.closed += 1
        if self.key.name == "broken":
            raise OSError("gone")


class Stores:
    def __init__(self, most: int) -> None:
        self.opened: list[Store] = []
        self.cache = WorkerCache(self._open, most)

    def _open(self, key: Key) -> Store:
        self.opened.append(Store(key))
        return self.opened[-1]

    def use(self, *names: str) -> None:
        for name in names:
            with self.cache.borrowed(Key(name)):
                pass

    @property
    def open(self) -> list[str]:
        return [store.key.name for store in self.opened if not store.closed]


def test_equal_keys_share_a_store() -> None:
    stores = Stores(2)
    with stores.cache.borrowed(Key("a", {"x": 1})) as first, stores.cache.borrowed(Key("a", {"x": 1})) as second:
        assert first is second
    assert len(stores.opened) == 1


def test_the_least_recently_used_is_closed_once() -> None:
    stores = Stores(2)
    stores.use("a", "b", "a", "c")
    assert stores.open == ["a", "c"]
    stores.use("b")
    assert stores.open == ["c", "b"]
    assert [store.closed for store in stores.opened] == [1, 1, 0, 0]


def test_a_store_in_use_stays_open_and_is_closed_afterwards() -> None:
    stores = Stores(1)
    with ExitStack() as tasks:
        for name in "abc":
            tasks.enter_context(stores.cache.borrowed(Key(name)))
        assert stores.open == ["a", "b", "c"]
    assert len(stores.open) == 1


def test_what_no_task_is_using_is_closed_before_the_process_ends() -> None:
    stores, others = Stores(2), Stores(2)
    others.use("c")
    with stores.cache.borrowed(Key("a")):
        stores.use("b")
        close_idle()
        assert (stores.open, others.open) == (["a"], [])
    assert stores.open == ["a"]
    close_idle()
    assert (stores.open, [store.closed for store in stores.opened]) == ([], [1, 1])


def test_a_store_that_does_not_close_fails_no_task(caplog: pytest.LogCaptureFixture) -> None:
    stores = Stores(1)
    with caplog.at_level(logging.WARNING, "tailrace_spark"):
        stores.use("broken", "a")
    assert stores.open == ["a"]
    assert "closing the connection to an earlier store failed: gone; its server ends it" in caplog.text


def test_a_store_that_does_not_open_is_asked_for_again() -> None:
    def refuse(key: Key) -> Store:
        raise OSError(key.name)

    cache = WorkerCache(refuse, 1)
    for _ in range(2):
        with pytest.raises(OSError, match="a"), cache.borrowed(Key("a")):
            raise AssertionError("it was opened")
