"""What measured processes are judged by: samples of the kernel's counters and of Kafka, and figures made of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_MEMORY: Final = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sample:
    """At so many seconds after its start a program had sent so many records, in so many seconds of CPU."""

    seconds: float
    records: int
    cpu: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUp:
    """How a program went through prepared segments.

    Seconds are counted from its start; `last` is when the last record was there, `idle_cpu` what it had used once it
    was at rest after that, `steady_cpu` what a record cost between the tenth and the ninetieth in a hundred.
    """

    records: int
    first: float
    last: float
    cpu: float
    steady_cpu: float
    idle_cpu: float
    memory_mb: float
    broker_cpu: float

    @property
    def whole_rate(self) -> float:
        """Records a second, the start included."""
        return self.records / self.last

    @property
    def rate(self) -> float:
        """Records a second, from the first to the last."""
        return self.records / max(self.last - self.first, 1e-9)

    def per_million(self, seconds: float) -> float:
        """CPU seconds for each million records."""
        return seconds / self.records * 1e6


def catch_up_of(
    samples: Sequence[Sample], records: int, *, idle_cpu: float, memory_mb: float, broker_cpu: float
) -> CatchUp:
    """The figures of a run; `samples` ascend, and count what a log has more than `records` at its end as well, such as
    marks of transactions. Raises ValueError where no record was seen."""
    first = next((sample for sample in samples if sample.records), None)
    if first is None:
        raise ValueError("no record came")
    end = samples[-1].records
    last = next(sample for sample in samples if sample.records == end)
    low = next(sample for sample in samples if sample.records >= 0.1 * end)
    high = next(sample for sample in samples if sample.records >= 0.9 * end)
    between = (high.records - low.records) * records / end
    return CatchUp(
        records=records,
        first=first.seconds,
        last=last.seconds,
        cpu=last.cpu,
        steady_cpu=(high.cpu - low.cpu) / between * 1e6 if between else 0.0,
        idle_cpu=idle_cpu,
        memory_mb=memory_mb,
        broker_cpu=broker_cpu,
    )


def percentile(values: Sequence[float], part: float) -> float:
    """The smallest value that at least this part (0 to 1) of the values do not exceed. Raises ValueError for none."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[max(0, -int(-part * len(ordered) // 1) - 1)]


def cpu_seconds(stat: str, ticks: int) -> float:
    """User and system time in the content of /proc/PID/stat; the program's name in it may have blanks and brackets."""
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / ticks


def most_memory_mb(status: str) -> float:
    """The most resident memory so far, in the content of /proc/PID/status. Raises ValueError where it is not said."""
    found = _MEMORY.search(status)
    if found is None:
        raise ValueError("no VmHWM")
    return int(found[1]) / 1024


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows of text under their heads, the first column to the left, the others to the right."""
    widths = [max(len(row[at]) for row in (heads, *rows)) for at in range(len(heads))]
    lines = (
        "  ".join(
            cell.ljust(width) if not at else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (heads, *rows)
    )
    return "\n".join(line.rstrip() for line in lines)
