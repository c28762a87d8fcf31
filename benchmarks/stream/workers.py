"""The stream by tasks on standalone clusters of one worker and of two, in turns: changes a second, CPU by kind.

Usage: python -m benchmarks.stream.workers [--workers N ...] [--records N] [--batch N] [--partitions N] [--rounds N]
[--share CORES] [--directory DIR]. Each worker has one core, and nothing in common with the driver. Kafka, the driver
and PostgreSQL share this machine with the workers. With --share, a worker gets that part of a core, so cores stay free.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import sqlalchemy as sa

from benchmarks.stream.corpus import PARTITIONS, prepared
from benchmarks.stream.cpu_share import cpu_share
from benchmarks.stream.execution import Figures, drain, draining, head, line, postmaster
from tailrace.local.kafka import KafkaSettings, LocalKafka
from tailrace_common.build import describe
from tailrace_spark.job.session import spark_session
from tailrace_spark.sinks.sql.sink import SqlSink
from tests import postgres
from tests.services.spark_cluster import SparkCluster


@dataclass(frozen=True, slots=True)
class _Run:
    """One stream: its Spark's settings, its topics, its database, and the processes whose CPU counts."""

    spark: dict[str, str]
    bootstrap: str
    prefix: str
    batch: int
    url: str
    roots: tuple[int, ...]


def main() -> None:
    """Print a line for each number of workers and round."""
    arguments = _arguments()
    print(f"{arguments.records:,} changes into PostgreSQL, {arguments.batch:,} in a batch, {describe()}\n")
    print(head())
    arguments.directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        kafka = stack.enter_context(LocalKafka(arguments.directory / "kafka", KafkaSettings(heap_mib=1024)))
        prefix = prepared(kafka.bootstrap, arguments.directory, arguments.records, arguments.partitions)
        archive = _archive(Path(stack.enter_context(tempfile.TemporaryDirectory())), kafka.bootstrap)
        clusters = [stack.enter_context(SparkCluster(count, "2g")) for count in arguments.workers]
        for worker in [worker for cluster in clusters for worker in cluster.workers if arguments.share]:
            stack.enter_context(cpu_share(worker.pid, arguments.share))
        for number in range(arguments.rounds):
            for cluster in clusters:
                spark = {**cluster.driver_settings(archive), "spark.executor.memory": "1g"}
                roots = (postmaster(), *(worker.pid for worker in cluster.workers))
                figures = _apart(_Run(spark, kafka.bootstrap, prefix, arguments.batch, _database(), roots))
                print(line(f"{len(cluster.workers)} worker(s)", figures), flush=True)
            print(f"  round {number + 1} of {arguments.rounds}, load {os.getloadavg()[0]:.1f}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stream.workers")
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--batch", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="of each of the four topics")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--share", type=float, metavar="CORES", help="the limit of each worker's CPU; needs root")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir(), "tailrace-execution"))
    return parser.parse_args()


def _archive(directory: Path, bootstrap: str) -> Path:
    """What brings executors our packages, as this process has them, with those of PostgreSQL's sink."""
    file, config = directory / "executors.tar.gz", directory / "tailrace.toml"
    config.write_text(
        f'[kafka]\n"bootstrap.servers" = "{bootstrap}"\n[sink.local]\nurl = "{_database()}"\n', encoding="utf-8"
    )
    command = (sys.executable, "-m", "tailrace_spark", "stream", "-c", str(config), "--archive", str(file))
    subprocess.run(command, cwd=directory, check=True, stdout=subprocess.DEVNULL)
    directory.chmod(0o755)
    return file


def _database() -> str:
    """A new one, which every machine reaches by TCP."""
    name = sa.make_url(postgres.new_database()).database
    return f"postgresql://postgres@127.0.0.1:{postgres.port()}/{name}"


def _apart(run: _Run) -> Figures:
    """A driver's process of its own: Spark's Java keeps the settings that it was started with."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_drive, args=(run, sending))
    process.start()
    sending.close()
    figures: Figures = receiving.recv()
    process.join()
    return figures


def _drive(run: _Run, figures: Connection) -> None:
    spark = spark_session(run.spark)
    settings = draining(run.bootstrap, run.prefix, Path(tempfile.mkdtemp()), "executors", run.batch)
    try:
        figures.send(drain(spark, settings, SqlSink(run.url), run.roots))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
