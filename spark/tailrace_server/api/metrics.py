"""The server's numbers for Prometheus. Names are a contract with dashboards: docs/metrics.md lists them."""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tailrace_schemas.errors import ServiceError
from tailrace_server.model.subscription import State
from tailrace_server.operations.answers import Answer, waits_for_its_table

log = logging.getLogger("tailrace_server")

MOST: Final = 1000
"""So many have a series of their own, the first ones by reference; the others are taken together."""
OTHERS: Final = "others"
"""The label of those; a reference has a slash."""
_STATES: Final = tuple(state for state in State if state is not State.CANCELLED)

Value = Callable[[Answer], float | None]
Together = Callable[[Iterable[float]], float]
_FRESH_SECONDS: Final = 5.0
T = TypeVar("T")
CONTENT_TYPE: Final = CONTENT_TYPE_LATEST


def _seconds(name: str) -> Value:
    return lambda answer: None if answer[name] is None else datetime.fromisoformat(answer[name]).timestamp()


_GAUGES: Final[Sequence[tuple[str, str, Value, Together]]] = (
    ("unclaimed", "1 while it is active, and no worker has it.",
     lambda answer: answer["state"] == State.ACTIVE and not answer["running"], sum),
    ("waiting", "1 while it is active, and nothing of its tables is published.", waits_for_its_table, sum),
    ("behind_records", "Records of its topics that are not in the sink.", lambda answer: answer["behind"], sum),
    ("behind_seconds", "Seconds since the sink had all that its topics had.",
     lambda answer: answer["behind_seconds"], max),
    ("written_timestamp_seconds", "When the sink was written last.", _seconds("written"), min),
    ("dead_letters", "Its dead letters.", lambda answer: answer["letters"], sum),
    ("dead_letters_timestamp_seconds", "When the first of them was set aside.", _seconds("letters_since"), min),
    ("snapshot_percent", "Share of the tokens of its tables that is in the sink.",
     lambda answer: answer["snapshot_percent"], min),
    ("left_out_tables", "Tables of its pattern that it goes without.", lambda answer: len(answer["left_out"]), sum),
)  # fmt: skip


class SubscriptionMetrics(Collector):
    """Asks for the subscriptions whenever the metrics are read."""

    def __init__(self, answers: Callable[[], Sequence[Answer]]) -> None:
        """`answers` are all that live."""
        self._answers = answers

    def describe(self) -> list[Metric]:
        """Nothing: else registering would ask."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Where the meta database does not answer, that alone."""
        reachable = GaugeMetricFamily("tailrace_server_meta_database_up", "1 while the meta database answers.")
        try:
            answers = sorted(self._answers(), key=lambda answer: str(answer["reference"]))
        except ServiceError as error:
            log.warning("%s; /metrics has no subscriptions meanwhile", error)
            reachable.add_metric([], 0)
            yield reachable
            return
        reachable.add_metric([], 1)
        yield reachable
        yield from metrics_of(answers)


def metrics_of(answers: Sequence[Answer]) -> Iterator[Metric]:
    """Of these, in this order."""
    named, remaining = answers[:MOST], answers[MOST:]
    yield _info(named)
    yield _states(named, remaining)
    for name, words, value, together in _GAUGES:
        gauge = GaugeMetricFamily(f"tailrace_subscription_{name}", words, labels=["subscription"])
        for answer in named:
            if (gauge_value := value(answer)) is not None:
                gauge.add_metric([answer["reference"]], gauge_value)
        if gauge_values := [gauge_value for answer in remaining if (gauge_value := value(answer)) is not None]:
            gauge.add_metric([OTHERS], together(gauge_values))
        yield gauge


def _info(answers: Iterable[Answer]) -> Metric:
    info = GaugeMetricFamily(
        "tailrace_subscription_info", "1: its sink, and its worker.", labels=["subscription", "sink", "worker"]
    )
    for answer in answers:
        info.add_metric([answer["reference"], answer["sink"], answer["owner"] or ""], 1)
    return info


def _states(named: Iterable[Answer], remaining: Sequence[Answer]) -> Metric:
    states = GaugeMetricFamily(
        "tailrace_subscription_state", "1 for its state, 0 for others.", labels=["subscription", "state"]
    )
    counts: Mapping[str, int] = collections.Counter(answer["state"] for answer in remaining)
    for state in _STATES:
        for answer in named:
            states.add_metric([answer["reference"], state], answer["state"] == state)
        if remaining:
            states.add_metric([OTHERS, state], counts.get(state, 0))
    return states


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
