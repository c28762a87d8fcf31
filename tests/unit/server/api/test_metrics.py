"""A value that many ask for: it is read once, and a failure is told to all who waited for it."""

from __future__ import annotations

from itertools import count
from threading import Thread

from tailrace_schemas.errors import ServiceError
from tailrace_server.api.metrics import Shared
from tests.support.waiting import until


def test_what_many_look_at_is_read_once() -> None:
    times, reads = iter([0.0, 1.0, 5.5]), iter(range(10))
    shared = Shared(lambda: next(reads), lambda: next(times))
    assert [shared.get() for _ in range(3)] == [0, 0, 1]


def test_who_has_waited_for_a_failure_is_told_it() -> None:
    """Each would wait as long again, where a database hangs."""
    times, asked, told = count(), list[int](), list[str]()

    def clock() -> float:
        asked.append(next(times))
        return asked[-1]

    def read() -> object:
        other.start()
        until(lambda: len(asked) == 2, "the other one")
        raise ServiceError("it is down")

    def get() -> None:
        try:
            shared.get()
        except ServiceError as error:
            told.append(str(error))

    shared, other = Shared(read, clock), Thread(target=get)
    get()
    other.join()
    assert told == ["it is down"] * 2
