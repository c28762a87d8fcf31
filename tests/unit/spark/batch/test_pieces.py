"""One ahead: order, errors in their turn, and never more than one waiting."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from tailrace_spark.batch.pieces import gc_paused, prefetched


def test_items_come_in_order_one_ahead_and_from_another_thread() -> None:
    made: list[int] = []
    threads = set[int]()

    def items() -> Iterator[int]:
        for number in range(5):
            made.append(number)
            threads.add(threading.get_ident())
            yield number

    used = []
    for number in prefetched(items()):
        assert len(made) <= number + 2
        used.append(number)
    assert used == made == [0, 1, 2, 3, 4]
    assert threading.get_ident() not in threads


def test_the_next_is_made_while_one_is_used() -> None:
    second = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        second.set()
        yield 2

    found = prefetched(items())
    assert next(found) == 1
    assert second.wait(60)
    assert list(found) == [2]


def test_an_error_comes_in_its_turn() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ConnectionError("gone")

    found = prefetched(items())
    assert next(found) == 1
    with pytest.raises(ConnectionError, match="gone"):
        next(found)


def test_stopping_early_leaves_no_thread() -> None:
    found = prefetched(iter(range(10)))
    assert next(found) == 0
    found.close()  # type: ignore[attr-defined]  # it is a generator
    assert not [one for one in threading.enumerate() if one.name.startswith("tailrace-ahead")]


@pytest.mark.parametrize("enabled", [True, False])
def test_it_is_as_before_afterwards(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(ConnectionError):
            fail_inside()
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()


def fail_inside() -> None:
    with gc_paused():
        assert not gc.isenabled()
        raise ConnectionError
