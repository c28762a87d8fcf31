"""How often each caller may ask: a bucket of tokens for each name, filled at a steady rate."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

MOST_NAMES: Final = 10_000
"""So many callers are remembered, those that asked last: addresses of strangers are among them."""


class RateLimit:
    """Takes a token for each request. Any thread may ask."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float]) -> None:
        """At most `burst` requests at once, then so many a second; `clock` is monotonic, in seconds."""
        self._per_second = per_second
        self._burst = float(burst)
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def times(self, factor: int) -> RateLimit:
        """Another one, which allows so many times as much."""
        return RateLimit(factor * self._per_second, factor * int(self._burst), self._clock)

    def wait(self, name: str) -> float:
        """0 where a caller may ask now; else in how many seconds. Asking too early costs nothing more."""
        with self._lock:
            now = self._clock()
            tokens, filled = self._buckets.pop(name, (self._burst, now))
            tokens = min(self._burst, tokens + (now - filled) * self._per_second)
            missing = max(0.0, 1 - tokens)
            self._buckets[name] = (tokens if missing else tokens - 1, now)
            if len(self._buckets) > MOST_NAMES:
                self._buckets.popitem(last=False)
            return missing / self._per_second
