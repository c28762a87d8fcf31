"""The agent's numbers in the text format that Prometheus scrapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tailrace.ops.health import Health

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

_COUNTS: Final = {
    "mutations": ("tailrace_mutations", "Mutations read and committed, those without a change to publish included."),
    "transactions": ("tailrace_transactions", "Kafka transactions committed."),
    "released": ("tailrace_segments_released", "Segments deleted from cdc_raw after their last change was committed."),
}


def exposition(health: Health, now: float) -> bytes:
    """What /metrics answers for this moment of the board's clock."""
    registry = CollectorRegistry()
    registry.register(_Moment(health, now))
    return generate_latest(registry)


class _Moment(Collector):
    """One moment as metrics. Names are a contract with dashboards: docs/metrics.md lists them."""

    def __init__(self, health: Health, now: float) -> None:
        self._health = health
        self._now = now

    def collect(self) -> Iterator[Metric]:
        health = self._health
        yield _gauge("tailrace_live", "Whether the run loop moves: 1 or 0.", health.live(self._now))
        yield _gauge("tailrace_ready", "Whether the agent is connected and publishing: 1 or 0.", health.ready)
        yield _gauge(
            "tailrace_behind_seconds",
            "Seconds since the agent had last read everything that Cassandra had released.",
            health.behind(self._now),
        )
        yield _labelled(
            GaugeMetricFamily(
                "tailrace_problems", "What is wrong now, by kind; /status has the words.", labels=["kind"]
            ),
            Counter(cause.split()[0] for cause in health.degraded),
        )
        yield _labelled(
            CounterMetricFamily("tailrace_changes", "Changes committed to Kafka, by topic.", labels=["topic"]),
            health.published,
        )
        for name, (metric, words) in _COUNTS.items():
            yield CounterMetricFamily(metric, words, value=health.counts.get(name, 0))
        if health.committed is not None:
            yield _gauge("tailrace_committed_epoch", "Log epoch of the position in Kafka.", health.committed.epoch)
            yield _gauge("tailrace_committed_segment", "Segment of the position in Kafka.", health.committed.segment)
            yield _gauge("tailrace_committed_offset", "Offset of it in that segment.", health.committed.offset)


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(name, words, value=float(value))


def _labelled(family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[str, float]) -> Metric:
    for label, value in sorted(values.items()):
        family.add_metric([label], value)
    return family
