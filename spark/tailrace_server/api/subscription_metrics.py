"""The subscriptions of a cluster for Prometheus, as the meta database has them: each server answers the same."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

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
    own, others = answers[:MOST], answers[MOST:]
    yield _info(own)
    yield _states(own, others)
    for name, words, value, together in _GAUGES:
        gauge = GaugeMetricFamily(f"tailrace_subscription_{name}", words, labels=["subscription"])
        for answer in own:
            if (number := value(answer)) is not None:
                gauge.add_metric([answer["reference"]], number)
        if numbers := [number for answer in others if (number := value(answer)) is not None]:
            gauge.add_metric([OTHERS], together(numbers))
        yield gauge


def _info(answers: Iterable[Answer]) -> Metric:
    info = GaugeMetricFamily(
        "tailrace_subscription_info", "1: its sink, and its worker.", labels=["subscription", "sink", "worker"]
    )
    for answer in answers:
        info.add_metric([answer["reference"], answer["sink"], answer["owner"] or ""], 1)
    return info


def _states(own: Iterable[Answer], others: Sequence[Answer]) -> Metric:
    states = GaugeMetricFamily(
        "tailrace_subscription_state", "1 for its state, 0 for others.", labels=["subscription", "state"]
    )
    counts: Mapping[str, int] = Counter(answer["state"] for answer in others)
    for state in _STATES:
        for answer in own:
            states.add_metric([answer["reference"], state], answer["state"] == state)
        if others:
            states.add_metric([OTHERS, state], counts.get(state, 0))
    return states
