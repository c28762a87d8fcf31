"""Bodies and paths of requests."""

from __future__ import annotations

from tests.unit.server.requests import SECRET

SINK = {"type": "sql", "url": f"postgresql://u:{SECRET}@host/d"}
BODY = {"table": "shop.orders", "name": "warehouse", "sink": SINK}
ONE = "/v1/subscriptions/shop.orders/warehouse"
