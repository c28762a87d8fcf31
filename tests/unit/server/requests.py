"""Requests and subscriptions as the tests make them."""

from __future__ import annotations

from typing import Any

from tailrace_server.model.subscription import Request, Shape, SinkSummary, Start, Subscription, TableName

CLUSTER = "tailrace"
SECRET = "hunter2"  # noqa: S105 - it has to be found where it must not be


def request(name: str = "warehouse", table: str = "shop.orders", **more: Any) -> Request:
    """One for a SQL sink whose URL has a password."""
    settings = {"type": "sql", "url": f"postgresql://u:{SECRET}@host/d", **more.pop("settings", {})}
    return Request(
        table=TableName.parse(more.pop("cluster", CLUSTER), table),
        name=name,
        sink=SinkSummary(type="sql", target="postgresql://host/d", shown={"type": "sql", "url": "**********"}),
        settings=settings,
        shape=more.pop("shape", Shape()),
        start=more.pop("start", Start()),
    )


def subscription(**more: Any) -> Subscription:
    """One that is active, and nobody's."""
    sink = SinkSummary(type="sql", target="postgresql://host/d")
    return Subscription(**{"id": 1, "table": TableName(CLUSTER, "shop", "orders"), "name": "w", "sink": sink, **more})
