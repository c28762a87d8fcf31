"""A value for all who ask within some seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

_FRESH_SECONDS: Final = 5.0
T = TypeVar("T")


class Shared(Generic[T]):
    """A value that is read again only when it is some seconds old; one reads, and the others wait for it."""

    def __init__(self, read: Callable[[], T], clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._value: tuple[float, T] | None = None
        self._failure: tuple[float, Exception] | None = None

    def get(self) -> T:
        """Raises what reading raises, to all who have waited for it too: each of them would wait as long again."""
        asked = self._clock()
        with self._lock:
            if self._failure is not None and self._failure[0] > asked:
                raise self._failure[1]
            if self._value is None or asked - self._value[0] > _FRESH_SECONDS:
                try:
                    self._value = asked, self._read()
                except Exception as error:
                    self._failure = self._clock(), error
                    raise
            return self._value[1]
