"""How many subscriptions a worker should run, and how long it waits before it tries one again."""

from __future__ import annotations


def fair_share(subscriptions: int, workers: int, limit: int) -> int:
    """The most that one of these workers should run; together they can run all, as far as `limit` of each allows."""
    return min(limit, -(-subscriptions // max(1, workers)))


def pause_seconds(attempts: int, random: float, longest: float) -> float:
    """How long to wait behind so many failures in a row: 1 s, 2 s, 4 s ..., shortened by up to a half at random.

    `random` is from 0 to 1. Without it all subscriptions of a store that comes back would ask at the same moment.
    """
    pause: float = min(longest, 2.0 ** min(attempts - 1, 30))
    return pause * (1 - random / 2)
