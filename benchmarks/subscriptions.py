"""Subscriptions of one topic on one worker: CPU, lag and memory of 1, 10 and 50 of them, and the factor against 1.

Usage: python -m benchmarks.subscriptions [--counts N ...] [--rate N] [--seconds N] [--burst N] [--trigger SECONDS]
[--set NAME=VALUE ...] [--profile DIR]. Each subscription writes an SQLite database of its own, so CPU of the sinks is
part of the worker's. CPU is that of the worker's processes alone; Kafka and the writer share the machine with it.
`--set` gives settings of [server] as TOML. `--profile` keeps, for each count, which threads of the worker used the CPU.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import sqlalchemy as sa

from benchmarks.agent.figures import cpu_seconds, percentile, table
from benchmarks.agent.processes import cpu_of
from benchmarks.stream.corpus import Cluster, change
from tailrace.local.kafka import KafkaSettings, LocalKafka
from tailrace_common.build import describe
from tailrace_common.kafka import PartitionEnds
from tailrace_common.settings import load_settings
from tailrace_schemas.topics import KafkaPartition
from tailrace_server.cli.opening import opened
from tailrace_server.meta.tables import progress
from tailrace_server.operations.asking import Asked
from tailrace_server.operations.operations import DirectOperations
from tests.integration.processes import PROGRAM

TABLE: Final = "bench.orders"
TABLES: Final = 4
"""`change` gives the tables in turns; every so manieth one is of TABLE."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE_MIB: Final = os.sysconf("SC_PAGE_SIZE") / 2**20
_TRANSACTION: Final = 2_000
_START_SECONDS: Final = 900.0
_LOOK_SECONDS: Final = 0.5
_IDLE_SECONDS: Final = 20.0
_SETTLE_SECONDS: Final = 10.0


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
    """How far all subscriptions are, by the meta database, beside where the topic ends."""

    def __init__(self, bootstrap: str, topic: str, engine: sa.Engine) -> None:
        self._ends = PartitionEnds({"bootstrap.servers": bootstrap})
        self._places: list[KafkaPartition] = [(topic, partition) for partition in range(3)]
        self._engine = engine
        self._seen: list[tuple[float, int]] = []

    def look(self) -> list[float]:
        """Seconds by which each subscription is behind."""
        now = time.monotonic()
        self._seen.append((now, sum(self._ends.of(self._places).values())))
        read = self._read()
        return [now - max((at for at, end in self._seen if end <= offset), default=self._seen[0][0]) for offset in read]

    def through(self, count: int) -> bool:
        """Whether so many have read all of it."""
        end = sum(self._ends.of(self._places).values())
        return sum(offset >= end for offset in self._read()) == count

    def _read(self) -> list[int]:
        total = sa.func.sum(progress.c.next_offset)
        with self._engine.connect() as connection:
            return [int(row[0]) for row in connection.execute(sa.select(total).group_by(progress.c.subscription))]


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

    def require_running(self) -> None:
        if self._process.poll() is not None:
            raise RuntimeError(f"the worker ended: {Path(self._log.name).read_text('utf-8', 'replace')[-3000:]}")


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
    config = _configured(bootstrap, prefix, place, given)
    with opened(load_settings(config, {})) as (_, subscriptions):
        operations = DirectOperations(subscriptions, load_settings(config, {}), "benchmark")
        for number in range(count):
            sink = {"type": "sql", "url": f"sqlite:///{place}/sink-{number}.db"}
            operations.subscribe(Asked(table=TABLE, name=f"s{number}", sink=sink), check=False)
    engine = sa.create_engine(f"sqlite:///{place}/meta.db")
    watch = Watch(bootstrap, f"{prefix}.{TABLE}", engine)
    writer.write(200)
    began = time.monotonic()
    with Worker(config) as worker:
        _until(worker, lambda: watch.through(count))
        started = time.monotonic() - began
        figures = _phases(worker, watch, writer, count, started, given)
    engine.dispose()
    return figures


def _phases(
    worker: Worker, watch: Watch, writer: Writer, count: int, started: float, given: argparse.Namespace
) -> Figures:
    with writer.at_rate(given.rate):
        time.sleep(given.warm)
        before, cpu, began = worker.by_thread(), worker.cpu, time.monotonic()
        lags: list[float] = []
        while time.monotonic() - began < given.seconds:
            time.sleep(_LOOK_SECONDS)
            lags += watch.look()
        passed, steady = time.monotonic() - began, worker.cpu - cpu
        spent = {name: seconds - before.get(name, 0.0) for name, seconds in worker.by_thread().items()}
        _keep_profile(given.profile, count, spent, passed)
    _until(worker, lambda: watch.through(count))
    time.sleep(_SETTLE_SECONDS)
    cpu, began = worker.cpu, time.monotonic()
    time.sleep(_IDLE_SECONDS)
    idle = _per_second(worker.cpu - cpu, time.monotonic() - began)
    cpu, began = worker.cpu, time.monotonic()
    writer.write(given.burst)
    _until(worker, lambda: watch.through(count))
    return Figures(
        count=count,
        started=started,
        steady=_per_second(steady, passed),
        lag=(percentile(lags, 0.5), percentile(lags, 0.95)),
        idle=idle,
        burst_seconds=time.monotonic() - began,
        burst=worker.cpu - cpu,
        memory=worker.memory,
        threads=worker.threads,
    )


def _configured(bootstrap: str, prefix: str, place: Path, given: argparse.Namespace) -> Path:
    config = place / "tailrace.toml"
    more = "".join(f"{line.partition('=')[0]} = {line.partition('=')[2]}\n" for line in given.set)
    config.write_text(
        f'[kafka]\n"bootstrap.servers" = "{bootstrap}"\n[topics]\nprefix = "{prefix}"\n'
        f'[server]\nurl = "sqlite:///{place}/meta.db"\nkey_file = "{place}/server.key"\n'
        f'checkpoints = "{place}/checkpoints"\nsnapshot = "never"\nmost_subscriptions = 500\n{more}'
        f"[stream]\ntrigger_seconds = {given.trigger}\n"
        '[stream.spark]\n"spark.master" = "local[2]"\n"spark.driver.memory" = "2g"\n',
        encoding="utf-8",
    )
    return config


def _until(worker: Worker, condition: Callable[[], bool]) -> None:
    until = time.monotonic() + _START_SECONDS
    while not condition():
        worker.require_running()
        if time.monotonic() > until:
            raise RuntimeError(f"the subscriptions have not read the topic within {_START_SECONDS:g} s")
        time.sleep(_LOOK_SECONDS / 2)


def _per_second(usage: Usage, seconds: float) -> Usage:
    return Usage(usage.python / seconds, usage.java / seconds)


def _keep_profile(directory: Path | None, count: int, spent: Mapping[str, float], seconds: float) -> None:
    if directory is None:
        return
    directory.mkdir(parents=True, exist_ok=True)
    shares = sorted(((cpu / seconds, name) for name, cpu in spent.items()), reverse=True)
    lines = "".join(f"{share:8.4f}  {name}\n" for share, name in shares if share >= 0.0005)
    (directory / f"threads-{count}.txt").write_text(lines, encoding="utf-8")


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
