"""A program goes through prepared segments as fast as it can."""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from benchmarks.agent.figures import CatchUp, Sample, catch_up_of
from benchmarks.agent.processes import Measured, cpu_of
from benchmarks.agent.programs import Program, Task
from benchmarks.agent.topics import PARTITIONS, Topic, reader
from tailrace.local.kafka import LocalKafka

_POLL_SECONDS: Final = 0.1
_LIMIT_SECONDS: Final = 600.0
_SETTLED_SECONDS: Final = 3.0


def copy_segments(segments: Path, target: Path) -> None:
    """Copies, with the index that Cassandra gives a finished segment; both programs delete what they have read."""
    target.mkdir(parents=True)
    for path in sorted(segments.glob("CommitLog-*.log")):
        shutil.copy(path, target)
        (target / f"{path.stem}_cdc.idx").write_text(f"{path.stat().st_size}\nCOMPLETED")


def catch_up(program: Program, task: Task, table: str, mutations: int, kafka: LocalKafka) -> CatchUp:
    """Start the program and follow it until nothing more comes. Raises RuntimeError where records are missing."""
    topic = Topic(task.bootstrap, task.topic(table))
    if not program.makes_topics:
        topic.make()
    broker = cpu_of(kafka.pid)
    with program.start(task) as run:
        samples = _follow(run, task.bootstrap, topic, mutations)
        used = cpu_of(kafka.pid) - broker
        idle, memory = run.at_rest(), run.memory_mb
    found = _count(task.bootstrap, topic)
    if found < mutations:
        raise RuntimeError(f"{program.name}: only {found} of {mutations} records in {topic.name}")
    return catch_up_of(samples, found, idle_cpu=idle, memory_mb=memory, broker_cpu=used)


def _follow(run: Measured, bootstrap: str, topic: Topic, mutations: int) -> list[Sample]:
    """Samples until as many records as mutations are there and no more have come for some seconds."""
    samples: list[Sample] = []
    moved = 0.0
    with closing(reader(bootstrap)) as consumer:
        while run.seconds < _LIMIT_SECONDS:
            run.require_running()
            sample = Sample(run.seconds, topic.end(consumer), run.cpu)
            if not samples or sample.records > samples[-1].records:
                moved = sample.seconds
            samples.append(sample)
            if sample.records >= mutations and sample.seconds - moved > _SETTLED_SECONDS:
                return samples
            time.sleep(_POLL_SECONDS)  # the time between two samples
    raise RuntimeError(f"{topic.name}: {samples[-1].records} records after {_LIMIT_SECONDS:.0f} s, of {mutations}")


def _count(bootstrap: str, topic: Topic) -> int:
    """The committed records of a topic."""
    count, at_end, until = 0, set[int](), time.monotonic() + _LIMIT_SECONDS
    with closing(reader(bootstrap, **{"enable.partition.eof": True})) as consumer:
        consumer.assign(topic.beginning())
        while len(at_end) < PARTITIONS:
            if time.monotonic() > until:
                raise RuntimeError(
                    f"{topic.name}: {count} records and the ends of {len(at_end)} partitions, of {PARTITIONS}, "
                    f"after {_LIMIT_SECONDS:.0f} s"
                )
            for message in consumer.consume(10_000, 1.0):
                if message.error() is None:
                    count += 1
                else:
                    at_end.add(message.partition() or 0)
    return count
