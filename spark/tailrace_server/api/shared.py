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

    def get(self) -> T:
        """Raises what reading raises."""
        with self._lock:
            now = self._clock()
            if self._value is None or now - self._value[0] > _FRESH_SECONDS:
                self._value = now, self._read()
            return self._value[1]
