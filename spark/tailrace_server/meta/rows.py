"""Subscriptions as rows of the meta database, and back."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa

from tailrace_server.model.subscription import Shape, Sink, Start, State, Subscription, TableName, Topics


def subscription_of(row: sa.RowMapping) -> Subscription:
    """The subscription that a row of `subscribe` is."""
    return Subscription(
        id=row["id"],
        table=TableName(row["cluster"], row["keyspace_name"], row["table_name"]),
        name=row["name"],
        sink=Sink(type=row["sink_type"], target=row["target"], options=json.loads(row["options"])),
        shape=Shape(**json.loads(row["shape"])),
        start=Start.parse(row["start"]),
        state=State(row["state"]),
        reason=row["reason"],
        action=row["action"],
        attempts=row["attempts"],
        revision=row["revision"],
        token=row["token"],
        owner=row["owner"],
        lease_until=row["lease_until"],
        created=row["created"],
        left_out={} if row["left_out"] is None else json.loads(row["left_out"]),
        topics=Topics() if row["topics"] is None else Topics(**json.loads(row["topics"])),
    )


def changeable(subscription: Subscription) -> dict[str, Any]:
    """The columns that an operation may change."""
    return {
        "ended": subscription.id if subscription.state is State.CANCELLED else 0,
        "target": subscription.sink.target,
        "options": as_json(subscription.sink.options),
        "shape": shape_json(subscription.shape),
        "start": str(subscription.start),
        "state": str(subscription.state),
        "reason": subscription.reason,
        "action": subscription.action,
        "attempts": subscription.attempts,
        "revision": subscription.revision,
        "token": subscription.token,
        "owner": subscription.owner,
        "lease_until": subscription.lease_until,
        "retry_at": None,
        "topics": topics_json(subscription.topics),
    }


def shape_json(shape: Shape) -> str:
    """A shape as JSON, which `subscription_of` reads."""
    return as_json({"where": shape.where, "columns": dict(shape.columns), "stream": dict(shape.stream)})


def topics_json(topics: Topics) -> str:
    """Topics as JSON, which `subscription_of` reads."""
    return as_json({"ids": dict(topics.ids), "readings": dict(topics.readings)})


def as_json(value: object) -> str:
    """JSON in which equal values are equal texts."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def audited(subscription: Subscription) -> dict[str, Any]:
    """What the audit keeps of a subscription: nothing that workers write."""
    return {
        "table": str(subscription.table),
        "name": subscription.name,
        "target": subscription.sink.target,
        "options": dict(subscription.sink.options),
        "where": subscription.shape.where,
        "columns": dict(subscription.shape.columns),
        "stream": dict(subscription.shape.stream),
        "start": str(subscription.start),
        "state": str(subscription.state),
    }
