"""How full cdc_raw is, how fast it fills, and when it will be full: from sizes and times alone."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tailrace_common.durations import duration_words

# The rate is that of the last minutes: long enough to see through a segment's end, short enough to tell of an outage.
_WINDOW_SECONDS: Final = 120.0
_LEAST_SECONDS: Final = 1.0
_SPACE: Final = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB|TiB)?")
_UNITS: Final[Mapping[str, int]] = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


@dataclass(frozen=True, slots=True)
class NodeLimits:
    """What the node says of cdc_raw. `total` is its limit in bytes, `segment` a segment's size; None: unknown.

    `may_delete`: whether Cassandra may delete segments that nobody read, as cdc_block_writes is false, or unknown.
    `log_segments` is how many segments the commit log can hold: twice commitlog_total_space, as Cassandra begins to
    flush there, and goes on to write.
    """

    total: int | None = None
    segment: int | None = None
    may_delete: bool = True
    log_segments: int | None = None


def limits_of(settings: Mapping[str, str]) -> NodeLimits:
    """The limits in the rows of `system_views.settings`; all unknown where they cannot be read.

    4.0 names its settings with their unit, and always blocks writes.
    """
    if not settings:
        return NodeLimits()
    total = _bytes(settings.get("cdc_total_space"), settings.get("cdc_total_space_in_mb"))
    segment = _bytes(settings.get("commitlog_segment_size"), settings.get("commitlog_segment_size_in_mb"))
    log = _bytes(settings.get("commitlog_total_space"), settings.get("commitlog_total_space_in_mb"))
    may_delete = settings.get("cdc_block_writes", "true") != "true"
    return NodeLimits(total or None, segment or None, may_delete, 2 * log // segment if log and segment else None)


def _bytes(text: str | None, mebibytes: str | None) -> int | None:
    match = _SPACE.fullmatch(text.strip()) if text is not None else None
    if match is not None:
        return int(match[1]) * _UNITS[match[2] or "MiB"]
    return int(mebibytes) << 20 if mebibytes is not None and mebibytes.isdecimal() else None


@dataclass(frozen=True, slots=True)
class Headroom:
    """One moment. `used` counts as Cassandra counts: every file of cdc_raw at its size. Bytes, and bytes a second."""

    used: int
    limit: int | None = None
    rate: float | None = None
    spooled: int = 0

    @property
    def fraction(self) -> float | None:
        """How much of the limit is used; None: the limit is unknown."""
        return None if self.limit is None else self.used / self.limit

    @property
    def seconds(self) -> float | None:
        """Seconds until it is full, if it goes on as now; None: never, or nobody can tell."""
        if self.limit is None or self.rate is None or self.rate <= 0:
            return None
        return max(0, self.limit - self.used) / self.rate

    def __str__(self) -> str:
        if self.limit is None:
            return f"{_mib(self.used)} in cdc_raw; its limit is unknown, as the node's settings cannot be read"
        seconds = self.seconds
        when = "" if seconds is None else f", full in about {duration_words(seconds)} at the present rate"
        return f"{_mib(self.used)} of {_mib(self.limit)} in cdc_raw ({100 * self.used / self.limit:.0f} %){when}"


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.0f} MiB"


class Meter:
    """Sizes as time goes by; times are monotonic seconds."""

    def __init__(self, window: float = _WINDOW_SECONDS) -> None:
        self._window = window
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, now: float, size: int) -> float | None:
        """One more size; the rate at which it grew over the window, in bytes a second (negative: it shrank).

        None until there is something to compare with.
        """
        self._samples.append((now, size))
        while len(self._samples) > 2 and now - self._samples[1][0] >= self._window:
            self._samples.popleft()
        since, first_size = self._samples[0]
        return (size - first_size) / (now - since) if now - since >= _LEAST_SECONDS else None
