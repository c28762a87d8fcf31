"""How many subscriptions a worker should run."""

from __future__ import annotations


def fair_share(subscriptions: int, workers: int, limit: int) -> int:
    """The most that one of these workers should run; together they can run all, as far as `limit` of each allows."""
    return min(limit, -(-subscriptions // max(1, workers)))
