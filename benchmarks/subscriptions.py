"""Subscriptions of one topic on one worker: CPU, lag and memory of 1, 10 and 50 of them, and the factor against 1.

Usage: python -m benchmarks.subscriptions [--counts N ...] [--rate N] [--seconds N] [--burst N] [--trigger SECONDS]
[--set NAME=VALUE ...] [--profile DIR]. Each subscription writes an SQLite database of its own, so CPU of the sinks is
part of the worker's. CPU is that of the worker's processes alone; Kafka and the writer share the machine with it.
`--set` gives settings of [server] as TOML. `--profile` keeps, for each count, which threads of the worker used the CPU.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import sqlalchemy as sa

from benchmarks.agent.figures import percentile, table
from benchmarks.worker_load import (
    TABLE,
    Usage,
    Watch,
    Worker,
    Writer,
    configured,
    per_second,
    steady,
    subscribed,
)
from tailrace.local.kafka import KafkaSettings, LocalKafka
from tailrace_common.build import describe

_IDLE_SECONDS: Final = 20.0
_SETTLE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one count: seconds until all had read the first changes, shares of a core at a rate and idle, the burst."""

    count: int
    started: float
    steady: Usage
    lag: tuple[float, float]
    idle: Usage
    burst: Usage
    burst_seconds: float
    memory: Usage
    threads: int


def main() -> None:
    """Print a line for each count, then the factors against the first one."""
    given = _arguments()
    print(
        f"{TABLE} at {given.rate:g} changes/s for {given.seconds:g} s, then {given.burst:,} at once; a batch every "
        f"{given.trigger:g} s; {describe()}\n",
        flush=True,
    )
    place = Path(tempfile.mkdtemp(prefix="tailrace-subscriptions-"))
    rows: list[Figures] = []
    with LocalKafka(place / "kafka", KafkaSettings(heap_mib=512)) as kafka:
        for count in given.counts:
            rows.append(_measured(kafka.bootstrap, place / f"{count}-{uuid4().hex[:4]}", count, given))
            print(_line(rows[-1]), flush=True)
    print()
    print(_shown(rows))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.subscriptions")
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 10, 50])
    parser.add_argument("--rate", type=float, default=200.0, help="changes a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--warm", type=float, default=30.0, help="seconds at that rate before it is measured")
    parser.add_argument("--burst", type=int, default=10_000)
    parser.add_argument("--trigger", type=float, default=1.0, help="stream.trigger_seconds")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings of [server], as TOML")
    parser.add_argument("--profile", type=Path, help="a directory for CPU by thread")
    return parser.parse_args()


def _measured(bootstrap: str, place: Path, count: int, given: argparse.Namespace) -> Figures:
    place.mkdir(parents=True)
    prefix = f"subs{uuid4().hex[:8]}"
    writer = Writer(bootstrap, prefix)
    sinks = {f"s{number}": {"type": "sql", "url": f"sqlite:///{place}/sink-{number}.db"} for number in range(count)}
    config = configured(bootstrap, prefix, place, given.trigger, given.set, sinks)
    with subscribed(config, sinks):
        pass
    engine = sa.create_engine(f"sqlite:///{place}/meta.db")
    watch = Watch(bootstrap, f"{prefix}.{TABLE}", engine)
    writer.write(200)
    began = time.monotonic()
    with Worker(config) as worker:
        worker.read_all(watch, count)
        started = time.monotonic() - began
        figures = _phases(worker, watch, writer, count, started, given)
    engine.dispose()
    return figures


def _phases(
    worker: Worker, watch: Watch, writer: Writer, count: int, started: float, given: argparse.Namespace
) -> Figures:
    at_rate = steady(worker, watch, writer, count, given)
    worker.read_all(watch, count)
    time.sleep(_SETTLE_SECONDS)  # what the last batch leaves to do is no idling
    cpu, began = worker.cpu, time.monotonic()
    time.sleep(_IDLE_SECONDS)  # the time that is measured
    idle = per_second(worker.cpu - cpu, time.monotonic() - began)
    cpu, began = worker.cpu, time.monotonic()
    writer.write(given.burst)
    worker.read_all(watch, count)
    return Figures(
        count=count,
        started=started,
        steady=at_rate.cpu,
        lag=(percentile(at_rate.lags, 0.5), percentile(at_rate.lags, 0.95)),
        idle=idle,
        burst_seconds=time.monotonic() - began,
        burst=worker.cpu - cpu,
        memory=worker.memory,
        threads=worker.threads,
    )


def _line(figures: Figures) -> str:
    return f"{figures.count} subscriptions: {figures}"


def _shown(rows: list[Figures]) -> str:
    heads = ["subscriptions", "start s", "CPU s/s", "Python", "Java", "factor", "lag p50", "lag p95", "idle CPU s/s"]
    heads += ["burst CPU s", "factor", "burst s", "MiB Python", "MiB Java", "threads"]
    first = rows[0]
    lines = []
    for row in rows:
        steady, burst = row.steady, row.burst
        line = [f"{row.count}", f"{row.started:.0f}", f"{steady.both:.3f}", f"{steady.python:.3f}"]
        line += [f"{steady.java:.3f}", f"{steady.both / first.steady.both:.1f}", f"{row.lag[0]:.1f}"]
        line += [f"{row.lag[1]:.1f}", f"{row.idle.both:.3f}", f"{burst.both:.1f}"]
        line += [f"{burst.both / first.burst.both:.1f}", f"{row.burst_seconds:.1f}", f"{row.memory.python:.0f}"]
        lines.append([*line, f"{row.memory.java:.0f}", f"{row.threads}"])
    return table(heads, lines)


if __name__ == "__main__":
    main()
