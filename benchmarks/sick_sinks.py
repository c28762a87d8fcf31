"""Subscriptions of one topic on one worker, some of whose sinks are down and some slow: the lag of all the others.

Usage: python -m benchmarks.sick_sinks [--count N] [--down N] [--slow N] [--rate N] [--trigger SECONDS] [--seconds N]
[--warm N] [--reachable] [--set NAME=VALUE ...] [--profile DIR]. Of `count` subscriptions `down` have a sink whose port
is closed, HTTP and PostgreSQL in turns, and `slow` an HTTP sink that answers one byte a second. All others write an
SQLite database each. They are measured first without the sick ones, then with them; the goal is 1.2 times the lag.
By `--reachable` the slow one answers OPTIONS at once: it begins beside the others, which leave it behind.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import tempfile
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import sqlalchemy as sa

from benchmarks.agent.figures import percentile, table
from benchmarks.slow_server import SlowServer
from benchmarks.worker_load import (
    TABLE,
    Usage,
    Watch,
    Worker,
    Writer,
    configured,
    steady,
    subscribed,
)
from tailrace.local.kafka import KafkaSettings, LocalKafka
from tailrace_common.build import describe
from tailrace_server.operations.operations import DirectOperations

_SHARED: Final = "share_reading=true"
Sinks = dict[str, dict[str, str]]
"""Settings of sinks by the name of their subscriber."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one run: healthy and sick subscriptions, lag in seconds (p50, p95, most), shares of a core, MiB, load."""

    healthy: int
    sick: int
    lag: tuple[float, float, float]
    cpu: Usage
    memory: Usage
    threads: int
    load: float
    states: tuple[str, ...]


def main() -> None:
    """Print the figures without the sick ones and with them, their factor, and the states of the sick ones."""
    given = _arguments()
    healthy = given.count - given.down - given.slow
    print(
        f"{TABLE} at {given.rate:g} changes/s for {given.seconds:g} s, a batch every {given.trigger:g} s; "
        f"{healthy} healthy, {given.down} down, {given.slow} slow; {describe()}\n",
        flush=True,
    )
    place = Path(tempfile.mkdtemp(prefix="tailrace-sick-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        kafka = stack.enter_context(LocalKafka(place / "kafka", KafkaSettings(heap_mib=512)))
        server = stack.enter_context(SlowServer(reachable=given.reachable))
        alone = _measured(kafka.bootstrap, place / "alone", healthy, {}, given)
        print(f"without: {alone}", flush=True)
        beside = _measured(kafka.bootstrap, place / "beside", healthy, _sick(server.address, given), given)
        print(f"with: {beside}\n\n{_shown([alone, beside])}\n", flush=True)
        print(f"{server.requests} requests and {server.sent} bytes of answers of the slow server")
    print("\n".join(beside.states))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sick_sinks")
    parser.add_argument("--count", type=int, default=200, help="subscriptions, the sick ones among them")
    parser.add_argument("--down", type=int, default=10)
    parser.add_argument("--slow", type=int, default=1)
    parser.add_argument("--rate", type=float, default=20.0, help="changes a second")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--warm", type=float, default=60.0, help="seconds at that rate before it is measured")
    parser.add_argument("--trigger", type=float, default=5.0, help="stream.trigger_seconds")
    parser.add_argument("--reachable", action="store_true", help="the slow server answers OPTIONS at once")
    parser.add_argument("--set", nargs="*", default=[_SHARED], metavar="NAME=VALUE", help="settings of [server]")
    parser.add_argument("--profile", type=Path, help="a directory for CPU by thread, and the worker's logs")
    return parser.parse_args()


def _sick(slow: str, given: argparse.Namespace) -> Sinks:
    """The sinks that do not work: their ports are closed, or their server is slow."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    down = [
        {"type": "http", "url": f"http://127.0.0.1:{port}/"}
        if number % 2 == 0
        else {"type": "sql", "url": f"postgresql://nobody@127.0.0.1:{port}/nothing"}
        for number in range(given.down)
    ]
    trickles = [{"type": "http", "url": f"{slow}/{number}"} for number in range(given.slow)]
    named = {f"down{number}": sink for number, sink in enumerate(down)}
    return named | {f"slow{number}": sink for number, sink in enumerate(trickles)}


def _measured(bootstrap: str, place: Path, healthy: int, sick: Sinks, given: argparse.Namespace) -> Figures:
    place.mkdir(parents=True)
    prefix = f"sick{uuid4().hex[:8]}"
    writer = Writer(bootstrap, prefix)
    sinks = sick | {f"s{n}": {"type": "sql", "url": f"sqlite:///{place}/sink-{n}.db"} for n in range(healthy)}
    config = configured(bootstrap, prefix, place, given.trigger, given.set, sinks)
    with subscribed(config, sinks) as operations:
        engine = sa.create_engine(f"sqlite:///{place}/meta.db")
        watch = Watch(bootstrap, f"{prefix}.{TABLE}", engine, without=_ids(engine, sick))
        writer.write(200)
        with Worker(config) as worker:
            worker.read_all(watch, healthy)
            figures = _followed(worker, watch, writer, operations, (healthy, sick), given)
            if given.profile is not None:
                shutil.copy(place / "worker.log", given.profile / f"worker-{len(sick)}.log")
        engine.dispose()
    return figures


def _ids(engine: sa.Engine, names: Collection[str]) -> list[int]:
    with engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT id, name FROM subscribe").all()
    return [identity for identity, name in rows if name in names]


def _followed(
    worker: Worker,
    watch: Watch,
    writer: Writer,
    operations: DirectOperations,
    counted: tuple[int, Sinks],
    given: argparse.Namespace,
) -> Figures:
    healthy, sick = counted
    at_rate = steady(worker, watch, writer, len(sick), given)
    states = [row for row in operations.all() if row["name"] in sick]
    unwell = [row["name"] for row in operations.all() if row["name"] not in sick and row["state"] != "active"]
    words = [f"{row['name']}: {row['state']}, {row['behind']} behind: {row['reason']}" for row in states]
    return Figures(
        healthy=healthy,
        sick=len(sick),
        lag=(percentile(at_rate.lags, 0.5), percentile(at_rate.lags, 0.95), max(at_rate.lags)),
        cpu=at_rate.cpu,
        memory=worker.memory,
        threads=worker.threads,
        load=at_rate.load,
        states=(*words, f"healthy ones that are not active: {unwell}"),
    )


def _shown(rows: list[Figures]) -> str:
    heads = ["healthy", "sick", "lag p50", "factor", "lag p95", "factor", "most", "CPU s/s", "Python", "Java"]
    heads += ["MiB Python", "MiB Java", "threads", "load"]
    first = rows[0].lag
    lines = []
    for row in rows:
        line = [f"{row.healthy}", f"{row.sick}", f"{row.lag[0]:.1f}", f"{row.lag[0] / first[0]:.2f}"]
        line += [f"{row.lag[1]:.1f}", f"{row.lag[1] / first[1]:.2f}", f"{row.lag[2]:.1f}", f"{row.cpu.both:.2f}"]
        line += [f"{row.cpu.python:.2f}", f"{row.cpu.java:.2f}", f"{row.memory.python:.0f}", f"{row.memory.java:.0f}"]
        lines.append([*line, f"{row.threads}", f"{row.load:.1f}"])
    return table(heads, lines)


if __name__ == "__main__":
    main()
