"""Bodies and paths of requests."""

from __future__ import annotations

BODY = {"table": "shop.orders", "name": "warehouse", "target": "dwh"}
ONE = "/v1/subscriptions/shop.orders/warehouse"
