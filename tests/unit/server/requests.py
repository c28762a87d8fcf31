"""Requests, subscriptions and the settings of servers as the tests make them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tailrace_common.settings import Settings, settings_from
from tailrace_server.model.subscription import Request, Shape, Sink, Start, Subscription, TableName

CLUSTER = "tailrace"
SECRET = "hunter2"  # noqa: S105 - it has to be found where it must not be
TARGETS: Final[Mapping[str, Mapping[str, object]]] = {
    "dwh": {"type": "sql", "url": f"postgresql://u:{SECRET}@127.0.0.1:1/d"},
    "memory": {"type": "sql", "url": "sqlite://"},
    "lake": {"type": "delta", "path": "/none"},
    "logs": {"type": "log-tables", "keyspace": "logs"},
    "hook": {"type": "http", "url": "http://127.0.0.1:1/", "bearer_token": SECRET},
    "topics": {"type": "kafka", "kafka": {"bootstrap.servers": "127.0.0.1:1", "sasl.password": SECRET}},
    "screen": {"type": "console"},
}


def settings(targets: Mapping[str, object] = TARGETS, **sections: object) -> Settings:
    """Those of a server with these targets."""
    return settings_from({"sink": {**targets}, **sections}, "test")


def request(name: str = "warehouse", table: str = "shop.orders", **more: Any) -> Request:
    """One for a SQL sink."""
    return Request(
        table=TableName.parse(more.pop("cluster", CLUSTER), table),
        name=name,
        sink=Sink(**{"type": "sql", "target": "dwh", **more.pop("sink", {})}),
        shape=more.pop("shape", Shape()),
        start=more.pop("start", Start()),
    )


def subscription(**more: Any) -> Subscription:
    """One that is active, and nobody's."""
    sink = Sink(type="sql", target="dwh")
    return Subscription(**{"id": 1, "table": TableName(CLUSTER, "shop", "orders"), "name": "w", "sink": sink, **more})
