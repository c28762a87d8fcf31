"""Subscriptions as people and programs are shown them: JSON without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tailrace_schemas.topics import KafkaPartition
from tailrace_server.model.progress import PartitionProgress, total_behind
from tailrace_server.model.subscription import NEVER, Subscription
from tailrace_spark.snapshot.intervals import Intervals
from tailrace_spark.snapshot.progress import Snapshots, TableSnapshot, snapshots_from_json, status_row

Answer = dict[str, Any]
Positions = Mapping[KafkaPartition, PartitionProgress]


def answer_of(subscription: Subscription, progress: Positions, ranges: str | None = None) -> Answer:
    """One subscription, with how many records it is behind; `ranges` is how far its snapshots are, as it is kept."""
    snapshots = _snapshots(ranges)
    return {
        "id": subscription.id,
        "table": str(subscription.table),
        "name": subscription.name,
        "reference": subscription.reference,
        "state": str(subscription.state),
        "sink": subscription.sink.type,
        "target": subscription.sink.target,
        "stage": _stage(subscription, snapshots),
        "snapshot_percent": _percent(snapshots),
        "behind": total_behind(progress.values()),
        "owner": subscription.owner,
        "reason": subscription.reason,
        "action": subscription.action,
        "left_out": dict(subscription.left_out),
    }


def details_of(subscription: Subscription, progress: Positions, ranges: str | None = None) -> Answer:
    """The same with its settings, and with its progress by Kafka partition and by the tables of its snapshots."""
    return {
        **answer_of(subscription, progress, ranges),
        "settings": dict(subscription.sink.shown),
        "where": subscription.shape.where,
        "columns": dict(subscription.shape.columns),
        "stream": dict(subscription.shape.stream),
        "spark": dict(subscription.shape.spark),
        "start": str(subscription.start),
        "attempts": subscription.attempts,
        "created": time_of(subscription.created),
        "token": subscription.token,
        "lease_until": None if subscription.lease_until is None else time_of(subscription.lease_until),
        "partitions": [
            {"topic": topic, "partition": partition, "next": reached.next, "end": reached.end, "behind": reached.behind}
            for (topic, partition), reached in sorted(progress.items())
        ],
        "snapshots": [_table(snapshot) for snapshot in _snapshots(ranges).tables],
    }


def _snapshots(ranges: str | None) -> Snapshots:
    return Snapshots() if ranges is None else snapshots_from_json(ranges)


def _stage(subscription: Subscription, snapshots: Snapshots) -> str:
    """`snapshot` while its tables are to be read, else `log`; the log is followed meanwhile, but for `only`."""
    outstanding = subscription.snapshot != NEVER and not snapshots.initial
    return "snapshot" if outstanding or snapshots.active else "log"


def _percent(snapshots: Snapshots) -> float | None:
    """Of all tables alike: how large they are nobody knows before they are read."""
    shares = [snapshot.share for snapshot in snapshots.tables]
    return round(100 * sum(shares) / len(shares), 1) if shares else None


def _table(snapshot: TableSnapshot) -> Answer:
    """One table's snapshot; `done` and `reading` are token ranges, [start, end] of (start, end]."""
    reading = () if snapshot.round is None else snapshot.round.tokens
    row = {name: value for name, value in status_row(snapshot).items() if name not in ("origin", "where")}
    return {**row, "done": _pairs(snapshot.done), "reading": _pairs(reading)}


def _pairs(ranges: Intervals) -> list[list[int]]:
    return [[token_range.start, token_range.end] for token_range in ranges]


def time_of(milliseconds: int) -> str:
    """A time of the meta database, in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
