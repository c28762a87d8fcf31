"""The agent's numbers in the text format that Prometheus scrapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tailrace.ops.headroom import Headroom
from tailrace.ops.health import Health, RingHealth, RingState

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

_COUNTS: Final = {
    "mutations": ("tailrace_mutations", "Mutations read and committed, those without a change to publish included."),
    "transactions": ("tailrace_transactions", "Kafka transactions committed."),
    "released": ("tailrace_segments_released", "Segments deleted, archived or left after their last commit."),
    "spooled": ("tailrace_segments_spooled", "Segments moved to the spool, as cdc_raw was nearly full."),
    "parked": ("tailrace_parked", "Mutations parked: without a definition, or refused."),
    "unparked": ("tailrace_unparked", "Mutations published after they were parked."),
    "lost_parked": ("tailrace_parked_lost", "Parked mutations whose segment had disappeared at the retry: a loss."),
    "dead_letters": ("tailrace_dead_letters", "Dead letters: of mutations parked for too long, or too large."),
    "schema_inferred": ("tailrace_changes_schema_inferred", "Changes read with a definition that was inferred."),
    "proposals": ("tailrace_generation_proposals", "Generations that this agent proposed."),
    "proposals_won": ("tailrace_generation_proposals_won", "Proposals of this agent that became the generation."),
    "proposals_late": (
        "tailrace_generation_proposals_late",
        "Proposals whose commit record came too late; proposed again.",
    ),
    "generation_failures": ("tailrace_generation_failures", "Times that the generations topic was out of reach."),
    "ring_failures": ("tailrace_ring_failures", "Times that the ring could not be read."),
    "topics_recreated": (
        "tailrace_topics_recreated",
        "Topics of tables that were deleted under the agent, and that it created again.",
    ),
    "dropped": ("tailrace_segments_dropped", "Segments deleted unread, as agent.on_pressure = drop-oldest says."),
}

_GAUGES: Final = {
    "waiting_segments": ("tailrace_waiting_segments", "Segments with changes that are not read to their end."),
    "waiting_bytes": ("tailrace_waiting_bytes", "Bytes of these segments."),
    "selected_tables": ("tailrace_selected_tables", "Tables with cdc = true that tables.include and exclude select."),
    "unselected_tables": ("tailrace_unselected_tables", "Tables with cdc = true that no pattern selects."),
    "bypassing_tables": (
        "tailrace_bypassing_tables",
        "Selected tables with cdc = true whose writes do not go through the commit log: nothing of them is captured.",
    ),
    "unmatched_patterns": ("tailrace_unmatched_patterns", "Patterns of tables.include that match no table."),
    "transaction_bytes": (
        "tailrace_transaction_limit_bytes",
        "The most bytes that a transaction of several mutations has: fewer where Kafka is slow.",
    ),
    "transaction_seconds": (
        "tailrace_transaction_timeout_seconds",
        "How long a transaction may be open: longer for a large mutation where Kafka is slow.",
    ),
    "kafka_bytes_per_second": (
        "tailrace_kafka_bytes_per_second",
        "Bytes a second that a slow Kafka accepted recently; 0 while it is not slow.",
    ),
    "mirrored_generations": ("tailrace_mirrored_generations", "Generations that the mirror in CQL is up to date with."),
}


def exposition(health: Health, now: float) -> bytes:
    """What /metrics answers for this moment of the board's clock."""
    registry = CollectorRegistry()
    registry.register(_Moment(health, now))
    ProcessCollector(registry=registry)
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
                "tailrace_problems", "Present problems, by kind; /status describes them.", labels=["kind"]
            ),
            Counter(cause.split()[0] for cause in health.degraded),
        )
        yield _labelled(
            CounterMetricFamily("tailrace_changes", "Changes committed to Kafka, by topic.", labels=["topic"]),
            health.published,
        )
        yield _labelled(
            CounterMetricFamily("tailrace_losses", "Reports of missing segments, by kind.", labels=["kind"]),
            {kind: health.counts.get(kind, 0) for kind in ("lost", "unknown")},
        )
        yield _labelled(
            GaugeMetricFamily(
                "tailrace_lag_seconds",
                "Seconds from writing to commit of the last change of a topic, by the writer's and the agent's clocks.",
                labels=["topic"],
            ),
            health.lags,
        )
        for name, (metric, words) in _GAUGES.items():
            if name in health.gauges:
                yield _gauge(metric, words, health.gauges[name])
        yield _gauge(
            "tailrace_unacknowledged_losses",
            "Losses of this host that nobody has acknowledged; `tailrace losses list` shows them.",
            health.gauges.get("unacknowledged_losses", 0),
        )
        yield _gauge("tailrace_parked_now", "Parked mutations.", health.gauges.get("parked_now", 0))
        if health.ring is not None:
            yield from _ring(health.ring)
        if health.headroom is not None:
            yield from _headroom(health.headroom)
        for name, (metric, words) in _COUNTS.items():
            yield CounterMetricFamily(metric, words, value=health.counts.get(name, 0))
        if health.committed is not None:
            yield _gauge("tailrace_committed_epoch", "Log epoch of the position in Kafka.", health.committed.epoch)
            yield _gauge("tailrace_committed_segment", "Segment of the position in Kafka.", health.committed.segment)
            yield _gauge("tailrace_committed_offset", "Offset of it in that segment.", health.committed.offset)


def _headroom(headroom: Headroom) -> Iterator[Metric]:
    yield _gauge("tailrace_cdc_raw_bytes", "Bytes in cdc_raw, as Cassandra counts them.", headroom.used)
    yield _gauge("tailrace_spool_bytes", "Bytes in the spool.", headroom.spooled)
    if headroom.limit is not None:
        yield _gauge("tailrace_cdc_raw_limit_bytes", "The node's cdc_total_space.", headroom.limit)
    if headroom.rate is not None:
        words = "Bytes a second by which cdc_raw grew in the last minutes; negative: it shrank."
        yield _gauge("tailrace_cdc_raw_growth_bytes", words, headroom.rate)
    if headroom.seconds is not None:
        words = "Seconds until cdc_raw is full at that rate; absent while it does not fill."
        yield _gauge("tailrace_cdc_raw_full_seconds", words, headroom.seconds)


def _ring(ring: RingHealth) -> Iterator[Metric]:
    words = "1 for how the ring that the node sees stands to the latest generation, 0 for what else there is."
    yield _labelled(
        GaugeMetricFamily("tailrace_ring_state", words, labels=["state"]),
        {state: float(state == ring.state) for state in RingState},
    )
    yield _gauge("tailrace_ring_nodes", "Nodes of the ring.", ring.nodes)
    if ring.generation is not None:
        words = "When the latest generation begins to operate, in seconds since 1970."
        yield _gauge("tailrace_generation_timestamp_seconds", words, ring.generation / 1000)


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(name, words, value=float(value))


def _labelled(family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[str, float]) -> Metric:
    for label, value in sorted(values.items()):
        family.add_metric([label], value)
    return family
