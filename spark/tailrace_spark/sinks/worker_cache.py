"""What a worker process has open for later tasks: its connections to the stores that it used last.

Spark's Python workers outlive streams, and one process serves the tasks of several. Each store that it has ever written
would else have a connection for as long as the process lives, and servers allow few.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar
from weakref import WeakSet

log = logging.getLogger("tailrace_spark")

MOST_OPEN: Final = 8
"""Stores of one kind that a worker process keeps open: more than the sinks that one Spark application often has."""


class Closeable(Protocol):
    """What ends its connections when it is closed."""

    def close(self) -> None: ...


Key = TypeVar("Key")
Opened = TypeVar("Opened", bound=Closeable)


@dataclass(slots=True)
class _Entry(Generic[Key, Opened]):
    key: Key
    opened: Opened
    borrowers: int = 0


class WorkerCache(Generic[Key, Opened]):
    """Opened stores of this process, by what they were opened from; equal keys share one.

    Beyond `most` the one that was used least recently is closed, but none that a task is using.
    """

    def __init__(self, open_store: Callable[[Key], Opened], max_open: int = MOST_OPEN) -> None:
        self._open = open_store
        self._max_open = max_open
        self._lock = threading.Lock()
        self._entries: list[_Entry[Key, Opened]] = []  # the least recently used first; keys need not have a hash
        _CACHES.add(self)

    @contextmanager
    def borrowed(self, key: Key) -> Iterator[Opened]:
        """The store of a key, opened when it is first asked for. Raises what opening it does."""
        with self._lock:
            entry = self._entry(key)
            entry.borrowers += 1
        try:
            yield entry.opened
        finally:
            with self._lock:
                entry.borrowers -= 1
                surplus = self._without_surplus(self._max_open)
            for opened in surplus:
                _close(opened)

    def close_idle(self) -> None:
        """Close what no task is using."""
        with self._lock:
            idle = self._without_surplus(0)
        for opened in idle:
            _close(opened)

    def _entry(self, key: Key) -> _Entry[Key, Opened]:
        entry = next((entry for entry in self._entries if entry.key == key), None)
        if entry is None:
            entry = _Entry(key, self._open(key))
        else:
            self._entries.remove(entry)
        self._entries.append(entry)
        return entry

    def _without_surplus(self, most: int) -> list[Opened]:
        """Forget the entries that are too many, and return what has to be closed."""
        idle = [entry for entry in self._entries if not entry.borrowers]
        surplus = idle[: max(0, len(self._entries) - most)]
        self._entries = [entry for entry in self._entries if entry not in surplus]
        return [entry.opened for entry in surplus]


_CACHES: Final = WeakSet[WorkerCache[Any, Any]]()


def close_idle() -> None:
    """Close what this process has open and no task is using. Its exit is too late for that: Cassandra's driver has
    threads that look for a node which is away, and can do so no longer then."""
    for cache in tuple(_CACHES):
        cache.close_idle()


def _close(opened: Closeable) -> None:
    try:
        opened.close()
    except Exception as error:  # of a store that nobody uses any more
        log.warning("closing the connection to an earlier store failed: %s; its server ends it", error)
