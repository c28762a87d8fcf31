"""The same changes into PostgreSQL by Tailrace's stream, and by Debezium's JDBC sink behind our Kafka sink.

Usage: python -m benchmarks.stream.jdbc_sink [--records N] [--batch N] [--rounds N] [--directory DIR]. Half of the
changes are updates of two columns. Three ways take turns: tasks write into PostgreSQL; tasks write events of Debezium's
form, with row images, into topics; and Debezium's sink, in Kafka Connect, upserts those into PostgreSQL. It overwrites
rows, and Tailrace merges them. Figures are of the time from the end of the first batch to the end of all. Memory is
that of the sink's own processes together, at most at the end of a batch; pages that they share count once.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from benchmarks.stream.corpus import PARTITIONS, TABLES, prepared
from benchmarks.stream.execution import draining, postmaster, processes_below
from tailrace.local.kafka import KafkaSettings, LocalKafka
from tailrace_common.build import describe
from tailrace_common.kafka import PartitionEnds
from tailrace_common.settings import Settings
from tailrace_spark.job.progress import Progress
from tailrace_spark.job.session import spark_session
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.registry import sink_of
from tests import postgres
from tests.services.connect import LocalConnect, jdbc_sink
from tests.support.waiting import until

_GROUP: Final = "connect-bench"
_MOST_SECONDS: Final = 3_600.0
_CORES: Final = 2


class Sample(NamedTuple):
    """At one moment: how many changes are done, and what the sink's processes and PostgreSQL's have used."""

    changes: int
    at: float
    sink: float
    postgresql: float
    memory: float


def main() -> None:
    """Print a line for each way and round."""
    given = _arguments()
    print(f"{given.records:,} changes, half of them updates, {given.batch:,} in a batch, {describe()}\n")
    print(f"{'':34}{'changes/s':>12}{'sink, us':>12}{'PostgreSQL, us':>16}{'sink, MB':>12}")
    given.directory.mkdir(parents=True, exist_ok=True)
    with LocalKafka(given.directory / "kafka", KafkaSettings(heap_mib=1024)) as kafka:
        prefix = prepared(kafka.bootstrap, given.directory, given.records, updates=True)
        for number in range(given.rounds):
            out = f"out{os.getpid()}-{number}"  # a name that no sink has had: its topic says what is written
            with _spark() as spark:
                for name, section in (("PostgreSQL", _postgresql()), ("Debezium's topics", _topics(out))):
                    settings = _settings(kafka, prefix, given.batch, out, section)
                    _show(f"Tailrace into {name}", _drained(spark, kafka, settings, out))
            _show("Debezium's JDBC sink from these", _followed(kafka, out, given.records, given.batch))
            print(f"  round {number + 1} of {given.rounds}, load {os.getloadavg()[0]:.1f}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stream.jdbc_sink")
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--batch", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir(), "tailrace-execution"))
    return parser.parse_args()


def _show(name: str, samples: list[Sample]) -> None:
    first, last = samples[0], samples[-1]
    changes = last.changes - first.changes
    sink, store = (last.sink - first.sink) / changes * 1e6, (last.postgresql - first.postgresql) / changes * 1e6
    memory = max(sample.memory for sample in samples)
    print(f"{name:34}{changes / (last.at - first.at):12,.0f}{sink:12.1f}{store:16.1f}{memory:12,.0f}", flush=True)


@contextmanager
def _spark() -> Iterator[SparkSession]:
    spark = spark_session(
        {
            "spark.master": f"local[{_CORES}]",
            "spark.driver.memory": "1g",
            "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        }
    )
    try:
        yield spark
    finally:
        spark.stop()


def _postgresql() -> dict[str, object]:
    return {"type": "sql", "url": postgres.new_database()}


def _topics(out: str) -> dict[str, object]:
    own = {"format": "debezium", "topic": f"{out}.{{table}}", "partitions": PARTITIONS}
    return {"type": "kafka", "images": postgres.new_database(), **own}


def _settings(kafka: LocalKafka, prefix: str, batch: int, sink: str, section: Mapping[str, object]) -> Settings:
    settings = draining(kafka.bootstrap, prefix, Path(tempfile.mkdtemp()), "executors", batch)
    return settings.model_copy(update={"sink": Settings.model_validate({"sink": {sink: section}}).sink})


def _drained(spark: SparkSession, kafka: LocalKafka, settings: Settings, name: str) -> list[Sample]:
    """All of the topics into the sink, by tasks: what was used at the end of each batch."""
    samples: list[Sample] = []

    def on_batch(progress: Progress) -> None:
        done = samples[-1].changes if samples else 0
        samples.append(_sample(done + progress.records, os.getpid(), kafka.pid))

    with closing(sink_of(settings, name)) as sink:
        Stream(spark, settings, sink, on_batch=on_batch).run(availableNow=True)
    return samples


def _followed(kafka: LocalKafka, out: str, records: int, batch: int) -> list[Sample]:
    """All events of the topics into PostgreSQL by Debezium's sink, from the first so many on."""
    topics = [f"{out}.{table.name}" for table, _ in TABLES]
    ends = PartitionEnds({"bootstrap.servers": kafka.bootstrap}).of(
        [(topic, number) for topic in topics for number in range(PARTITIONS)]
    )
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 2})

    def left() -> int:
        groups = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(_GROUP)])
        found = {(one.topic, one.partition): one.offset for one in groups[_GROUP].result(60).topic_partitions or ()}
        # The record behind a partition's last event is the mark of its transaction, which nobody commits.
        return sum(max(0, end - 1 - max(0, found.get(partition, 0))) for partition, end in ends.items() if end)

    with jdbc_sink(postgres.new_database()) as upserts, tempfile.TemporaryDirectory() as directory:
        connector = {
            **upserts,
            "tasks.max": str(_CORES),
            "topics": ",".join(topics),
        }
        connect = LocalConnect(Path(directory), kafka.bootstrap, {"bench": connector}, java_options=("-Xmx1g",))
        with connect:
            until(lambda: left() <= records - batch, "its first batch", _MOST_SECONDS, over=lambda: not connect.running)
            samples = [_sample(records - left(), connect.pid)]
            until(lambda: not left(), "all events", _MOST_SECONDS, over=lambda: not connect.running, every=0.5)
            samples.append(_sample(records, connect.pid))
    admin.delete_consumer_groups([_GROUP])[_GROUP].result(60)
    return samples


def _sample(changes: int, sink: int, *others: int) -> Sample:
    """What a process has used with those below it, but for `others` and theirs."""
    apart = {process.pid for process in processes_below({*others, postmaster()})}
    own = [process for process in processes_below({sink}) if process.pid not in apart]
    store = processes_below({postmaster()})
    memory = sum(_memory(process.pid) for process in own) / 1e6
    own_cpu, store_cpu = (sum(process.cpu for process in kind) for kind in (own, store))
    return Sample(changes, time.monotonic(), own_cpu, store_cpu, memory)


def _memory(pid: int) -> int:
    """Bytes of a process, of shared pages its part (Pss); 0 of one that has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


if __name__ == "__main__":
    main()
