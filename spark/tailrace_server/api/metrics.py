"""The server's numbers for Prometheus. Names are a contract with dashboards: docs/metrics.md lists them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, ProcessCollector, generate_latest

from tailrace_server.api.subscription_metrics import SubscriptionMetrics
from tailrace_server.operations.answers import Answer

_FRESH_SECONDS: Final = 5.0
T = TypeVar("T")
CONTENT_TYPE: Final = CONTENT_TYPE_LATEST


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
        began = self._clock()
        with self._lock:
            if self._failure is not None and self._failure[0] > began:
                raise self._failure[1]
            if self._value is None or began - self._value[0] > _FRESH_SECONDS:
                try:
                    self._value = began, self._read()
                except Exception as error:
                    self._failure = self._clock(), error
                    raise
            return self._value[1]


class ServerMetrics:
    """Counts answers, in a registry of its own. Any thread may count and read."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Counter(
            "tailrace_server_requests", "Answers of the HTTP API and of the page.", ["status"], registry=self.registry
        )
        self._limited = Counter(
            "tailrace_server_requests_limited",
            "Requests that were refused as a caller asked too often.",
            ["caller"],
            registry=self.registry,
        )
        for kind in ("key", "subject", "address", "anybody"):
            self._limited.labels(kind)

    def watch(self, subscriptions: Callable[[], Sequence[Answer]]) -> None:
        """Add those of subscriptions, which are asked for when the metrics are read, every few seconds at the most."""
        self.registry.register(SubscriptionMetrics(Shared(subscriptions).get))

    def answered(self, status: int) -> None:
        """One more answer."""
        self._requests.labels(str(status)).inc()

    def limited(self, kind: str) -> None:
        """One more refusal; `kind` is what the caller is known by: key, subject, address or anybody."""
        self._limited.labels(kind).inc()

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self.registry)


class Counting:
    """ASGI: counts answers by their status."""

    def __init__(self, app: Any, metrics: ServerMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """As ASGI has it."""

        async def counted(message: Any) -> None:
            if message["type"] == "http.response.start":
                self._metrics.answered(message["status"])
            await send(message)

        await self._app(scope, receive, counted)
