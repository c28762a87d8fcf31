"""The stream into a sink by the driver and by tasks, in turns: CPU by kind of process, and the driver's memory.

Usage: python -m benchmarks.stream.execution [--sink NAME] [--records N] [--batch N] [--partitions N] [--only NAME]
[--rounds N] [--cores N] [--replicas N] [--where CONDITION] [--directory DIR]. So many replicas publish each change;
figures are of a change, however often it comes. With a condition each execution drains the topics twice: without a
filter, and with this one of all tables (docs/shaping.md). Kafka, Spark and the store share this machine, so changes a
second say less than CPU does.
"""

from __future__ import annotations

import argparse
import atexit
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

import sqlalchemy as sa
from pyspark.sql import SparkSession

from benchmarks.agent.processes import memory_mb_of
from benchmarks.stream.corpus import PARTITIONS, prepared
from benchmarks.stream.sinks import settings_of
from tailrace.local import LocalCassandra
from tailrace.local.kafka import KafkaSettings, LocalKafka
from tailrace_common.build import describe
from tailrace_common.settings import Settings
from tailrace_spark.job.progress import Progress
from tailrace_spark.job.session import spark_session
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tailrace_spark.sinks.delta.store import DeltaStore
from tailrace_spark.sinks.files.outlet import FilesOutlet, FilesSink
from tailrace_spark.sinks.files.settings import FilesSinkSettings
from tailrace_spark.sinks.files.store import FileStore
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
from tailrace_spark.sinks.iceberg.store import IcebergStore
from tailrace_spark.sinks.lake.history import LakeHistory, history_sink
from tailrace_spark.sinks.protocol import Sink
from tailrace_spark.sinks.registry import open_sink
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.integration.agents import cql, create_keyspace
from tests.postgres import new_database, server_url

EXECUTIONS: Final = ("driver", "executors")
KINDS: Final = ("driver's Python", "workers' Python", "Java", "executors' Java", "PostgreSQL", "Cassandra", "Kafka")
_SINKS: Final[Mapping[str, Callable[[str], Sink]]] = {
    "postgresql": lambda _: SqlSink(new_database()),
    "cassandra": lambda _: _copy("cassandra"),
    "log-tables": lambda _: _copy("log-tables"),
    "delta": lambda path: history_sink(LakeHistory(DeltaStore(DeltaSinkSettings(path=path)))),
    "iceberg": lambda path: history_sink(LakeHistory(IcebergStore(IcebergSinkSettings(path=path)))),
    "files": lambda path: FilesSink(_files(FilesSinkSettings(path=path))),
}
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Print a line for each execution and round."""
    arguments = _arguments()
    work = f"{arguments.records:,} changes into {arguments.sink}, {arguments.batch:,} in a batch"
    print(f"{work}, local[{arguments.cores}], {describe()}\n")
    print(head())
    arguments.directory.mkdir(parents=True, exist_ok=True)
    with LocalKafka(arguments.directory / "kafka", KafkaSettings(heap_mib=1024)) as kafka:
        prefix = prepared(
            kafka.bootstrap, arguments.directory, arguments.records, arguments.partitions, arguments.replicas
        )
        spark = spark_session(
            {
                "spark.master": f"local[{arguments.cores}]",
                "spark.driver.memory": "2g",
                "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            }
        )
        conditions = ("", arguments.where) if arguments.where else ("",)
        for number in range(arguments.rounds):
            for execution, where in product(arguments.only or EXECUTIONS, conditions):
                place = Path(tempfile.mkdtemp())
                sink = _SINKS[arguments.sink](str(place / "lake"))
                settings = draining(kafka.bootstrap, prefix, place, execution, arguments.batch, where)
                figures = drain(spark, settings, sink, (postmaster(),), arguments.replicas)
                print(line(f"{execution} where" if where else execution, figures), flush=True)
            print(f"  round {number + 1} of {arguments.rounds}, load {os.getloadavg()[0]:.1f}", flush=True)
        spark.stop()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stream.execution")
    parser.add_argument("--sink", choices=_SINKS, default="postgresql")
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--batch", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="of each of the four topics")
    parser.add_argument("--only", choices=EXECUTIONS, action="append", help="one of the two executions")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--replicas", type=int, default=1, help="that publish each change")
    parser.add_argument("--where", default="", help="a condition on the changes of each table")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir(), "tailrace-execution"))
    return parser.parse_args()


class Figures(NamedTuple):
    """Of a stream: changes a second, microseconds of CPU a change by kind of process, the driver's peak of MB."""

    rate: float
    used: Mapping[str, float]
    memory: float


def head() -> str:
    """The line above those of `line`."""
    kinds = "".join(f"{kind + ', us':>22}" for kind in KINDS)
    return f"{'':16}{'changes/s':>12}{kinds}{'driver MB':>12}"


def line(name: str, figures: Figures) -> str:
    """A row of the table."""
    used = "".join(f"{figures.used[kind]:22.1f}" for kind in KINDS)
    return f"{name:16}{figures.rate:12,.0f}{used}{figures.memory:12,.0f}"


def draining(bootstrap: str, prefix: str, place: Path, execution: str, batch: int, where: str = "") -> Settings:
    """The settings of a stream that writes so many changes in a batch, one batch after the other."""
    limits = {"execution": execution, "max_offsets_per_trigger": batch, "trigger_seconds": 0}
    filters = {"where": {"bench.*": where}} if where else {}
    return settings_of(bootstrap, prefix, place / "checkpoint", **limits, **filters)


def drain(spark: SparkSession, settings: Settings, sink: Sink, roots: Collection[int], replicas: int = 1) -> Figures:
    """Drain the topics; from the first batch's end to the last one's, since the start costs seconds.

    Counted are this process and these `roots`, each with all processes below it.
    """
    marks: list[tuple[int, float, Mapping[str, float]]] = []

    def on_batch(progress: Progress) -> None:
        if not marks:
            Path("/proc/self/clear_refs").write_text("5", "utf-8")  # the peak of memory begins here
        marks.append((progress.records, time.monotonic(), cpu_by_kind({os.getpid(), *roots})))

    try:
        Stream(spark, settings, sink, on_batch=on_batch).run(availableNow=True)
    finally:
        sink.close()
    (_, began, before), *rest = marks
    changes, (_, ended, after) = sum(count for count, _, _ in rest) / replicas, rest[-1]
    used = {kind: max(0.0, after[kind] - before[kind]) / changes * 1e6 for kind in KINDS}
    return Figures(changes / (ended - began), used, memory_mb_of())


def _copy(kind: str) -> Sink:
    """A sink of a new keyspace on this run's node."""
    node, keyspace = _node(), f"k{uuid4().hex[:10]}"
    with cql(node) as session:
        create_keyspace(session, keyspace)
    section = {
        "type": kind, "contact_points": [node.address], "port": node.port, "keyspace": keyspace,
        "request_timeout_seconds": 60,
    }  # fmt: skip
    return open_sink("bench", Settings.model_validate({"sink": {"bench": section}}).sink["bench"], "bench")


@cache
def _node() -> LocalCassandra:
    """A node that ends with this process."""
    node = LocalCassandra(Path(tempfile.mkdtemp()) / "cassandra")
    node.__enter__()
    atexit.register(node.__exit__, None, None, None)
    return node


def _files(settings: FilesSinkSettings) -> FilesOutlet:
    return FilesOutlet(FileStore.of(settings), settings)


def cpu_by_kind(roots: Collection[int]) -> dict[str, float]:
    """Seconds of CPU so far of these processes and all below them, by kind; of those that have ended too."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for process in processes_below(roots):
        seconds[_kind(process)] += process.cpu
    return {kind: seconds[kind] for kind in KINDS}


def processes_below(roots: Collection[int]) -> list[Process]:
    """These processes and all below them."""
    running = {process.pid: process for process in processes()}
    ours = set(roots)
    while more := {pid for pid, process in running.items() if process.parent in ours} - ours:
        ours |= more
    return [running[pid] for pid in ours & running.keys()]


class Process(NamedTuple):
    """A process; `cpu` is in seconds, of ended children too where these are of the same kind, `memory` in bytes."""

    pid: int
    parent: int
    command: str
    cpu: float
    memory: int


def _kind(process: Process) -> str:
    if process.pid == os.getpid():
        return "driver's Python"
    kinds = {
        "pyspark.daemon": "workers' Python",
        "SparkSubmit": "Java",
        "CoarseGrainedExecutorBackend": "executors' Java",
        "kafka.Kafka": "Kafka",
        "CassandraDaemon": "Cassandra",
        "postgres": "PostgreSQL",
    }
    return next((kind for mark, kind in kinds.items() if mark in process.command), "")


def processes() -> Iterator[Process]:
    """All that run."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            fields = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            continue
        own, children = (sum(map(int, fields[start : start + 2])) / _TICKS for start in (11, 13))
        collects = "postgres" in command or "pyspark.daemon" in command
        cpu = own + (children if collects else 0.0)
        yield Process(int(entry.name), int(fields[1]), command, cpu, int(fields[21]) * _PAGE)


def postmaster() -> int:
    """The id of PostgreSQL's first process, which is nobody's child."""
    engine = sa.create_engine(server_url())
    with engine.connect() as connection:
        folder = Path(connection.exec_driver_sql("SHOW data_directory").scalar_one())
    engine.dispose()
    return int((folder / "postmaster.pid").read_text("utf-8").split()[0])


if __name__ == "__main__":
    main()
