"""A writer that is stopped before it writes what it has read, as by SIGSTOP, in a thread of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event, get_ident
from typing import TypeVar

import sqlalchemy as sa

from tests.unit.spark.sinks.in_tasks import SECONDS

Result = TypeVar("Result")


@contextmanager
def stopped_before(statement: str, work: Callable[[], Result]) -> Iterator[Callable[[], Result]]:
    """The work as it stands before its first statement of this pattern. The call lets it go on, and has its result."""
    reached, told = Event(), Event()
    stopped: list[int] = []

    def executed(_connection: object, _cursor: object, words: str, *_: object) -> None:
        if get_ident() in stopped and re.match(statement, words):
            reached.set()
            assert told.wait(SECONDS)

    def run() -> Result:
        stopped.append(get_ident())
        return work()

    def go_on() -> Result:
        told.set()
        return running.result(SECONDS)

    sa.event.listen(sa.Engine, "before_cursor_execute", executed)
    try:
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(run)
            running.add_done_callback(lambda _: reached.set())
            try:
                assert reached.wait(SECONDS)
                assert not running.done(), running
                yield go_on
            finally:
                told.set()
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", executed)
