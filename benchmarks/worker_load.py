"""A topic that is written at a rate, a worker of subscriptions as a process, and how far these are: for benchmarks."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from benchmarks.agent.figures import cpu_seconds
from benchmarks.agent.processes import cpu_of
from benchmarks.stream.corpus import PARTITIONS, Cluster, change
from tailrace_common.kafka import PartitionEnds
from tailrace_common.settings import load_settings
from tailrace_schemas.topics import KafkaPartition
from tailrace_server.cli.opening import opened
from tailrace_server.meta.tables import progress
from tailrace_server.operations.asking import Asked
from tailrace_server.operations.operations import DirectOperations
from tests.integration.processes import PROGRAM
from tests.support.waiting import until

TABLE: Final = "bench.orders"
TABLES: Final = 4
"""`change` gives the tables in turns; every so manieth one is of TABLE."""
LOOK_SECONDS: Final = 0.5
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE_MIB: Final = os.sysconf("SC_PAGE_SIZE") / 2**20
_TRANSACTION: Final = 2_000
_START_SECONDS: Final = 900.0
_STOP_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds by kind of process, or MiB."""

    python: float
    java: float

    @property
    def both(self) -> float:
        return self.python + self.java

    def __sub__(self, other: Usage) -> Usage:
        return Usage(self.python - other.python, self.java - other.java)


class Writer:
    """Changes of TABLE, and how much of the topic there was at which time."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._cluster = Cluster(bootstrap, prefix)
        self._cluster.make()
        self._next = 0

    def write(self, count: int) -> None:
        """So many changes, in transactions of at most 2,000."""
        until = self._next + count
        while self._next < until:
            numbers = range(self._next, min(until, self._next + _TRANSACTION))
            written = int(time.time() * 1e6)
            self._cluster.publish(change(TABLES * number, written) for number in numbers)
            self._next = numbers.stop

    @contextmanager
    def at_rate(self, rate: float) -> Iterator[None]:
        """While inside, so many changes a second, in transactions of 50 ms."""
        stop = threading.Event()

        def run() -> None:
            began, written = time.monotonic(), 0
            while not stop.wait(0.05):
                due = int((time.monotonic() - began) * rate)
                self.write(due - written)
                written = due

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


class Watch:
    """How far subscriptions are, by the meta database, beside where the topic ends."""

    def __init__(self, bootstrap: str, topic: str, engine: sa.Engine, *, without: Collection[int] = ()) -> None:
        """`without` are ids of subscriptions that are not looked at."""
        self._ends = PartitionEnds({"bootstrap.servers": bootstrap}, timeout=_START_SECONDS)
        self._topic = topic
        self._places: list[KafkaPartition] = [(topic, partition) for partition in range(PARTITIONS)]
        self._engine = engine
        self._without = sorted(without)
        self._seen: list[tuple[float, int]] = []

    def look(self) -> list[float]:
        """Seconds by which each subscription is behind."""
        now = time.monotonic()
        self._seen.append((now, sum(self._ends.of(self._places).values())))
        read = self._read()
        return [now - max((at for at, end in self._seen if end <= offset), default=self._seen[0][0]) for offset in read]

    def through(self, count: int) -> bool:
        """Whether so many have read all of it."""
        # What is committed stands there before its end does, which `of` gives.
        end = sum(self._ends.high_watermarks([self._topic]).values())
        return sum(offset >= end for offset in self._read()) == count

    def _read(self) -> list[int]:
        total = sa.func.sum(progress.c.next_offset)
        statement = sa.select(total).where(progress.c.subscription.not_in(self._without))
        with self._engine.connect() as connection:
            return [int(row[0]) for row in connection.execute(statement.group_by(progress.c.subscription))]


class Worker:
    """`tailrace server --role worker` as a process. A context manager."""

    def __init__(self, config: Path) -> None:
        self._log = (config.parent / "worker.log").open("wb")
        command = (sys.executable, *PROGRAM, "server", "--role", "worker", "-c", str(config))
        self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT, cwd=config.parent)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:  # a sink is slow
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _processes(self) -> dict[int, str]:
        """The names of the processes, by id."""
        parents: dict[int, list[int]] = {}
        names: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit():
                    name, _, rest = (entry / "stat").read_text("utf-8", "replace").partition("(")[2].rpartition(")")
                    parents.setdefault(int(rest.split()[1]), []).append(int(entry.name))
                    names[int(entry.name)] = name
        descendants = [self._process.pid]
        for pid in descendants:
            descendants += parents.get(pid, [])
        return {pid: names[pid] for pid in descendants}

    def _sum(self, of: Callable[[int], float]) -> Usage:
        python = java = 0.0
        for pid, name in self._processes().items():
            with suppress(OSError):
                java, python = (java + of(pid), python) if name == "java" else (java, python + of(pid))
        return Usage(python, java)

    @property
    def cpu(self) -> Usage:
        """Seconds so far."""
        return self._sum(cpu_of)

    @property
    def memory(self) -> Usage:
        """MiB now."""
        return self._sum(lambda pid: int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_MIB)

    @property
    def threads(self) -> int:
        """Of Python's process."""
        return len(list(Path(f"/proc/{self._process.pid}/task").iterdir()))

    def by_thread(self) -> dict[str, float]:
        """CPU seconds so far by the names of process and thread, without digits."""
        spent: dict[str, float] = {}
        for pid, kind in self._processes().items():
            for task in Path(f"/proc/{pid}/task").iterdir():
                with suppress(OSError):
                    stat = (task / "stat").read_text("utf-8", "replace")
                    plain = "".join(sign for sign in stat.partition("(")[2].rpartition(")")[0] if not sign.isdigit())
                    name = f"{kind}: {plain}"
                    spent[name] = spent.get(name, 0.0) + cpu_seconds(stat, _TICKS)
        return spent

    def read_all(self, watch: Watch, count: int) -> None:
        """Return when so many subscriptions have read the whole topic. Fails where the worker ends before."""
        until(
            lambda: watch.through(count),
            f"{count} subscriptions have read the topic",
            _START_SECONDS,
            over=lambda: self._process.poll() is not None,
            state=lambda: Path(self._log.name).read_text("utf-8", "replace")[-3000:],
            every=LOOK_SECONDS / 2,
        )


@dataclass(frozen=True, slots=True)
class Steady:
    """A worker while its topic is written at a rate: seconds by which its subscriptions are behind, shares of a core,
    and the load of the machine."""

    lags: list[float]
    cpu: Usage
    load: float


def steady(worker: Worker, watch: Watch, writer: Writer, count: int, given: argparse.Namespace) -> Steady:
    """Write at `given.rate`, and measure for `given.seconds` after `given.warm`. Shares by thread go to
    `given.profile`, where that is a directory, under this `count`."""
    with writer.at_rate(given.rate):
        time.sleep(given.warm)  # Java compiles what it runs for a while, and does not say when it has done so
        before, cpu, began = worker.by_thread(), worker.cpu, time.monotonic()
        lags: list[float] = []
        while time.monotonic() - began < given.seconds:
            time.sleep(LOOK_SECONDS)  # the time between two samples
            lags += watch.look()
        passed, used, load = time.monotonic() - began, worker.cpu - cpu, os.getloadavg()[0]
        threads = worker.by_thread()
    if given.profile is not None:
        given.profile.mkdir(parents=True, exist_ok=True)
        shares = sorted(((threads[name] - before.get(name, 0.0)) / passed, name) for name in threads)[::-1]
        lines = "".join(f"{share:8.4f}  {name}\n" for share, name in shares if share >= 0.0005)
        (given.profile / f"threads-{count}.txt").write_text(lines, encoding="utf-8")
    return Steady(lags, per_second(used, passed), load)


@contextmanager
def subscribed(config: Path, names: Collection[str]) -> Iterator[DirectOperations]:
    """A subscription of TABLE into each of these targets of the settings, under the target's name."""
    settings = load_settings(config, {})
    with opened(settings) as (_, subscriptions):
        operations = DirectOperations(subscriptions, settings, "benchmark")
        for name in names:
            operations.subscribe(Asked(table=TABLE, name=name, target=name), check=False)
        yield operations


def configured(
    bootstrap: str,
    prefix: str,
    place: Path,
    trigger: float,
    more: Collection[str],
    sinks: Mapping[str, Mapping[str, str]],
) -> Path:
    """A settings file below `place` with these sinks, by name.

    `trigger` is stream.trigger_seconds, `more` are NAME=VALUE of [server].
    """
    config = place / "tailrace.toml"
    lines = "".join(f"{line.partition('=')[0]} = {line.partition('=')[2]}\n" for line in more)
    targets = "".join(
        f"[sink.{name}]\n" + "".join(f'{option} = "{value}"\n' for option, value in sink.items())
        for name, sink in sinks.items()
    )
    config.write_text(
        f'[kafka]\n"bootstrap.servers" = "{bootstrap}"\n[topics]\nprefix = "{prefix}"\n'
        f'[server]\nurl = "sqlite:///{place}/meta.db"\n'
        f'checkpoints = "{place}/checkpoints"\nsnapshot = "never"\nmost_subscriptions = 500\n{lines}'
        f"[stream]\ntrigger_seconds = {trigger}\n"
        f'[stream.spark]\n"spark.master" = "local[2]"\n"spark.driver.memory" = "2g"\n{targets}',
        encoding="utf-8",
    )
    return config


def per_second(usage: Usage, seconds: float) -> Usage:
    """Shares of a core."""
    return Usage(usage.python / seconds, usage.java / seconds)
