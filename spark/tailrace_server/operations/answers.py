"""Subscriptions as people and programs are shown them: JSON without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tailrace_schemas.topics import KafkaPartition
from tailrace_server.model.progress import PartitionProgress, total_behind
from tailrace_server.model.subscription import Subscription

Answer = dict[str, Any]


def answer_of(subscription: Subscription, progress: Mapping[KafkaPartition, PartitionProgress]) -> Answer:
    """One subscription, with how many records it is behind."""
    return {
        "id": subscription.id,
        "table": str(subscription.table),
        "name": subscription.name,
        "reference": subscription.reference,
        "state": str(subscription.state),
        "sink": subscription.sink.type,
        "target": subscription.sink.target,
        "behind": total_behind(progress.values()),
        "owner": subscription.owner,
        "reason": subscription.reason,
        "action": subscription.action,
    }


def details_of(subscription: Subscription, progress: Mapping[KafkaPartition, PartitionProgress]) -> Answer:
    """The same with its settings, and with its progress by Kafka partition."""
    return {
        **answer_of(subscription, progress),
        "settings": dict(subscription.sink.shown),
        "where": subscription.shape.where,
        "columns": dict(subscription.shape.columns),
        "stream": dict(subscription.shape.stream),
        "start": str(subscription.start),
        "attempts": subscription.attempts,
        "created": time_of(subscription.created),
        "token": subscription.token,
        "lease_until": None if subscription.lease_until is None else time_of(subscription.lease_until),
        "partitions": [
            {"topic": topic, "partition": partition, "next": reached.next, "end": reached.end, "behind": reached.behind}
            for (topic, partition), reached in sorted(progress.items())
        ],
    }


def time_of(milliseconds: int) -> str:
    """A time of the meta database, in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
