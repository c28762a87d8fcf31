"""The agent's health as a value, and the board on which the run loop keeps it for other threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from tailrace.ops.headroom import Headroom
from tailrace_schemas.position import Position, position_to_json


class RingState(StrEnum):
    """How the ring that this node sees stands to the latest generation."""

    UNKNOWN = "unknown"
    """It could not be read."""
    CHANGING = "changing"
    """A node joins, leaves or moves."""
    SETTLING = "settling"
    """It is another than the generation's, and has not been so for long enough."""
    DUE = "due"
    """It is another, and is proposed now."""
    COVERED = "covered"
    """The latest generation was made from it."""


NOTHING: Final = "nothing"
_MEANINGS: Final = {
    RingState.UNKNOWN: "the ring could not be read",
    RingState.CHANGING: "the ring is changing",
    RingState.SETTLING: "the ring has changed a moment ago",
    RingState.DUE: "the ring has no generation of its own",
    RingState.COVERED: "made from the present ring",
}


def utc(milliseconds: int) -> str:
    """A timestamp as people and programs read it, such as 2026-11-23T07:00:00.000Z."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03}Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class RingHealth:
    """One moment. `generation`: the latest valid one's timestamp in milliseconds, None before the first is known.

    `waits_for`: in words, what the next step needs; `nodes`: how many the ring has, 0 before it was read.
    """

    generation: int | None
    state: RingState
    waits_for: str
    nodes: int

    def as_json(self) -> dict[str, object]:
        """For /status."""
        return {
            "generation": self.generation,
            "state": self.state,
            "waits_for": self.waits_for,
            "nodes": self.nodes,
        }

    def __str__(self) -> str:
        latest = "no generation yet" if self.generation is None else f"latest generation from {utc(self.generation)}"
        waits = "" if self.waits_for == NOTHING else f"; waiting for {self.waits_for}"
        return f"{self.nodes} nodes; {latest}; {_MEANINGS[self.state]}{waits}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """One moment. `degraded` says by cause what is wrong and what to do; empty when all is well.

    `ready`: connected and publishing, without a cause that keeps all changes from Kafka. `committed` is the position
    that Kafka has. `counts` only grow: changes and transactions committed, mutations read, segments released, and looks
    after which all was in Kafka (all_published). `published` too: changes committed, by topic. `gauges` are levels,
    such as mutations that are parked now; `lags` are seconds from writing to commit of each topic's last change.
    `caught_up` is when nothing that Cassandra had released was left to read. `headroom` is cdc_raw's; `ring` says how
    the node's ring stands to the latest generation. `about` says whose agent it is: node, cluster, prefix, version,
    tables; `started` is when it began.
    """

    ready: bool = False
    about: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    started: float = 0.0
    degraded: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    committed: Position | None = None
    counts: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    published: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    gauges: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    lags: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    caught_up: float = 0.0
    seen_alive: float = 0.0
    headroom: Headroom | None = None
    ring: RingHealth | None = None

    def live(self, now: float, limit_seconds: float = 60.0) -> bool:
        """Whether the run loop has moved within the limit; waiting and retrying count as moving."""
        return now - self.seen_alive <= limit_seconds

    def behind(self, now: float) -> float:
        """Seconds since everything that Cassandra had released was read."""
        return max(0.0, now - self.caught_up)

    def as_json(self, now: float) -> dict[str, object]:
        """For /status."""
        return {
            "live": self.live(now),
            "ready": self.ready,
            "about": dict(self.about),
            "uptime_seconds": round(now - self.started),
            "degraded": dict(self.degraded),
            "committed": None if self.committed is None else position_to_json(self.committed),
            "counts": dict(self.counts),
            "published": dict(self.published),
            "gauges": dict(self.gauges),
            "lag_seconds": {topic: round(seconds, 3) for topic, seconds in self.lags.items()},
            "behind_seconds": round(self.behind(now), 3),
            "cdc_raw": None if self.headroom is None else _headroom_json(self.headroom),
            "ring": None if self.ring is None else self.ring.as_json(),
        }


class HealthBoard:
    """Holds the present health; any thread may read and write. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._connected = False
        self._blocking: set[str] = set()
        now = clock()
        self._health = Health(started=now, seen_alive=now, caught_up=now)

    @property
    def now(self) -> Health:
        """The present health."""
        with self._lock:
            return self._health

    def alive(self) -> None:
        """The run loop moves."""
        self._change(seen_alive=self._clock())

    def ready(self, ready: bool) -> None:
        """Whether the agent is connected and publishing."""
        with self._lock:
            self._connected = ready
            self._judge_readiness()

    def about(self, **words: str) -> None:
        """Whose agent it is, by name; adds to what was said before."""
        with self._lock:
            self._change(about=MappingProxyType({**self._health.about, **words}))

    def degrade(self, cause: str, words: str, *, blocking: bool = False) -> bool:
        """Something is wrong: what, and what to do. Whether that is news. `blocking`: not ready while it lasts."""
        with self._lock:
            (self._blocking.add if blocking else self._blocking.discard)(cause)
            self._judge_readiness()
            news = self._health.degraded.get(cause) != words
            if news:
                self._change(degraded=MappingProxyType({**self._health.degraded, cause: words}))
            return news

    def recover(self, cause: str) -> bool:
        """That cause is gone. Whether it was there."""
        with self._lock:
            degraded = self._health.degraded
            self._blocking.discard(cause)
            self._judge_readiness()
            if cause in degraded:
                self._change(degraded=MappingProxyType({c: w for c, w in degraded.items() if c != cause}))
            return cause in degraded

    def committed(self, position: Position | None) -> None:
        """Kafka has everything up to this position."""
        self._change(committed=position)

    def count(self, **added: int) -> None:
        """Add to counts."""
        with self._lock:
            counts = dict(self._health.counts)
            for name, count in added.items():
                counts[name] = counts.get(name, 0) + count
            self._change(counts=MappingProxyType(counts))

    def gauge(self, **levels: float) -> None:
        """Set levels."""
        with self._lock:
            self._change(gauges=MappingProxyType({**self._health.gauges, **levels}))

    def lags(self, seconds: Mapping[str, float]) -> None:
        """Set the lags of these topics; never below 0, though a writer may date a change ahead."""
        with self._lock:
            lags = {topic: max(0.0, lag) for topic, lag in seconds.items()}
            self._change(lags=MappingProxyType({**self._health.lags, **lags}))

    def published(self, by_topic: Mapping[str, int]) -> None:
        """Add changes that were committed."""
        with self._lock:
            published = dict(self._health.published)
            for topic, count in by_topic.items():
                published[topic] = published.get(topic, 0) + count
            self._change(published=MappingProxyType(published))

    def caught_up(self) -> None:
        """Nothing that was released is left to read."""
        self._change(caught_up=self._clock())

    def headroom(self, headroom: Headroom) -> None:
        """How full cdc_raw is now."""
        self._change(headroom=headroom)

    def ring(self, ring: RingHealth) -> None:
        """How the ring stands now."""
        self._change(ring=ring)

    def seconds(self) -> float:
        """The board's clock, to judge liveness by."""
        return self._clock()

    def _judge_readiness(self) -> None:
        ready = self._connected and not self._blocking
        if ready != self._health.ready:
            self._change(ready=ready)

    def _change(self, **fields: object) -> None:
        with self._lock:
            self._health = replace(self._health, **fields)  # type: ignore[arg-type]  # replace checks names at run time


def _headroom_json(headroom: Headroom) -> dict[str, object]:
    rate, seconds = headroom.rate, headroom.seconds
    return {
        "used_bytes": headroom.used,
        "limit_bytes": headroom.limit,
        "bytes_per_second": None if rate is None else round(rate),
        "seconds_to_full": None if seconds is None else round(seconds),
        "spooled_bytes": headroom.spooled,
        "words": str(headroom),
    }
