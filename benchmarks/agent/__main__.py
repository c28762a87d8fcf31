"""`make bench-agent`: both programs, one after the other, on the same segments, then at 100 rows a second."""

from __future__ import annotations

import argparse
import json
import os
import platform
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.agent.catch_up import catch_up, copy_segments
from benchmarks.agent.figures import CatchUp, table
from benchmarks.agent.latency import Latency, latency, session_of
from benchmarks.agent.programs import Program, Tailrace, Task
from benchmarks.corpus import EVENTS, KEYSPACE
from benchmarks.peers.debezium import FOR_LATENCY, FOR_THROUGHPUT, Debezium
from tailrace.local.cassandra import CassandraSettings, LocalCassandra
from tailrace.local.kafka import KafkaSettings, LocalKafka

_NODE: Final = CassandraSettings(segment_mib=1, sync_period_ms=200)


def main() -> None:
    """Print a table of each part; `--json FILE` has all figures."""
    given = _arguments()
    print(f"# {os.cpu_count()} cores, Python {platform.python_version()}, {platform.machine()}\n", flush=True)
    figures: dict[str, Any] = {}
    with TemporaryDirectory(prefix="tailrace-bench-", dir=given.scratch) as scratch:
        place = Path(scratch)
        if "catch-up" in given.parts:
            caught = _catch_up(place, given)
            figures["catch-up"] = {name: asdict(one) for name, one in caught.items()}
            print(f"{given.mutations:,} mutations on prepared segments\n\n{_caught_up(caught)}\n", flush=True)
        if "latency" in given.parts:
            late = _latency(place, given)
            figures["latency"] = {name: asdict(one) for name, one in late.items()}
            print(f"{given.rate:g} rows a second for {given.seconds:g} s\n\n{_latencies(late)}\n", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=1) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agent")
    parser.add_argument("--mutations", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--alone", action="store_true", help="without Debezium")
    parser.add_argument("--parts", nargs="+", choices=("catch-up", "latency"), default=("catch-up", "latency"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--scratch", type=Path, help="where services and segments are put; else the temporary folder")
    return parser.parse_args()


def _catch_up(place: Path, given: argparse.Namespace) -> dict[str, CatchUp]:
    """Each program on its own copies of the segments; the node is there for the schema."""
    segments, _ = EVENTS.recorded(given.mutations)
    programs: list[Program] = [Tailrace()]
    if not given.alone:
        programs += [Debezium("defaults", {}), Debezium("tuned", FOR_THROUGHPUT)]
    found: dict[str, CatchUp] = {}
    with (
        LocalKafka(place / "kafka", KafkaSettings(heap_mib=1024)) as kafka,
        LocalCassandra(place / "node", _NODE) as node,
    ):
        with session_of(node) as session:
            session.execute(KEYSPACE)
            session.execute(f"{EVENTS.create} WITH cdc = true AND id = {EVENTS.table_id}")
        for number, program in enumerate(programs):
            task = _task(place, node, kafka, f"caught{number}", live=False)
            copy_segments(segments, task.cdc_raw)
            os.sync()
            found[program.name] = catch_up(program, task, "perf.events", given.mutations, kafka)
    return found


def _latency(place: Path, given: argparse.Namespace) -> dict[str, Latency]:
    """Each program beside a node of its own, whose log it follows."""
    programs: list[Program] = [Tailrace()]
    if not given.alone:
        programs += [Debezium("tuned for latency", FOR_LATENCY)]
    found: dict[str, Latency] = {}
    with LocalKafka(place / "kafka2") as kafka:
        for number, program in enumerate(programs):
            with LocalCassandra(place / f"node{number}", _NODE) as node:
                task = _task(place, node, kafka, f"live{number}", live=True)
                found[program.name] = latency(program, task, given.seconds, given.rate)
    return found


def _task(place: Path, node: LocalCassandra, kafka: LocalKafka, prefix: str, *, live: bool) -> Task:
    directory = place / prefix
    directory.mkdir()
    cdc_raw = node.cdc_raw if live else directory / "cdc_raw"
    return Task(directory=directory, node=node, cdc_raw=cdc_raw, bootstrap=kafka.bootstrap, prefix=prefix, live=live)


def _caught_up(found: dict[str, CatchUp]) -> str:
    heads = (
        "", "records/s", "whole run", "CPU s/million", "10-90 %", "until at rest", "peak MB", "first record s",
        "broker CPU s/million", "records",
    )  # fmt: skip
    rows = [
        (
            name, f"{one.rate:,.0f}", f"{one.whole_rate:,.0f}", f"{one.per_million(one.cpu):.2f}",
            f"{one.steady_cpu:.2f}", f"{one.per_million(one.idle_cpu):.2f}", f"{one.memory_mb:.0f}", f"{one.first:.2f}",
            f"{one.per_million(one.broker_cpu):.1f}", f"{one.records:,}",
        )
        for name, one in found.items()
    ]  # fmt: skip
    return table(heads, rows)


def _latencies(found: dict[str, Latency]) -> str:
    heads = ("", "p50 s", "p95 s", "p99 s", "first record s", "producer ready s", "CPU s", "missing", "again")
    rows = [
        (
            name, f"{one.p50:.3f}", f"{one.p95:.3f}", f"{one.p99:.3f}", f"{one.first:.2f}",
            "" if one.ready is None else f"{one.ready:.2f}", f"{one.cpu:.2f}", str(one.missing), str(one.duplicates),
        )
        for name, one in found.items()
    ]  # fmt: skip
    return table(heads, rows)


if __name__ == "__main__":
    main()
