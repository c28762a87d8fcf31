"""Many subscriptions of one topic on one worker against one, and healthy ones beside sick ones.

Usage: python -m benchmarks.subscriptions [subscriptions [changes [healthy [sick]]]], by default 50 10000 20 10. CPU is
that of the server, its Java and Python's workers, so a busy machine matters little; times are of the machine.
"""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from uuid import uuid4

from tailrace.local import LocalKafka
from tailrace_common.build import describe
from tailrace_server.operations.asking import Asked
from tests.integration.feed import Feed
from tests.integration.server.servers import ServerProcess, Site
from tests.integration.test_stream_kills import ITEMS, LOG

PATIENCE: Final = 3600.0
ROUNDS: Final = 12
DOWN: Final = "postgresql://nobody:none@127.0.0.1:1/nothing"
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Use:
    """Of a process and all below it: CPU seconds so far, resident bytes, threads, and open sockets."""

    cpu: float
    memory: int
    threads: int
    sockets: int


def use_of(pid: int) -> Use:
    """By /proc."""
    children: dict[int, list[int]] = {}
    fields: dict[int, list[str]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                row = (folder / "stat").read_text().rpartition(")")[2].split()
                fields[int(folder.name)] = row
                children.setdefault(int(row[1]), []).append(int(folder.name))
    pending, total = [pid], Use(0.0, 0, 0, 0)
    while pending:
        process = pending.pop()
        pending += children.get(process, [])
        row = fields[process]
        ticks = sum(int(row[index]) for index in (11, 12, 13, 14))
        total = Use(
            total.cpu + ticks / _TICKS,
            total.memory + int(row[21]) * _PAGE,
            total.threads + int(row[17]),
            total.sockets + _sockets(process),
        )
    return total


def _sockets(pid: int) -> int:
    count = 0
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                count += os.readlink(descriptor).startswith("socket:")
    return count


class Stage:
    """A topic, and a server whose subscriptions write files into folders of their own."""

    def __init__(self, root: Path, kafka: LocalKafka) -> None:
        self._root = root
        self._prefix = f"b{uuid4().hex[:10]}"
        self._feed = Feed(kafka.bootstrap, self._prefix)
        self._feed.announce()
        self._site = Site(root, kafka, self._prefix, f"sqlite:///{root / 'meta.db'}", most_subscriptions=1000)
        self._key = 0

    def subscribe(self, name: str, sink: Mapping[str, Any] | None = None, where: str | None = None) -> None:
        """A subscription, into files unless `sink` says otherwise."""
        files = {"type": "files", "path": str(self._root / name)}
        with self._site.operations() as operations:
            stream = {"trigger_seconds": 1}
            operations.subscribe(Asked(table="shop.items", name=name, sink=sink or files, where=where, stream=stream))

    def publish(self, count: int) -> None:
        """So many changes, each of another key."""
        for first in range(0, count, 1000):
            keys = range(self._key + first, self._key + min(count, first + 1000))
            self._feed.publish([LOG.insert((key,), (), 1000 + key, v=f"v{key}", w=key) for key in keys])
        self._key += count

    def behind(self, *names: str) -> int:
        """The most records that one of these is behind; more than there are while one has not begun."""
        ends = sum(self._feed.end(ITEMS, number) for number in range(self._feed.options.partitions))
        with self._site.operations() as operations:
            progress = [operations.details(name)["partitions"] for name in names]
        return max(ends - sum(int(row["next"]) for row in rows) for rows in progress)

    def until_read(self, server: ServerProcess, *names: str) -> float:
        """Seconds until all of these have all that is published."""
        began = time.monotonic()
        server.until(lambda: self.behind(*names) <= 0, PATIENCE)
        return time.monotonic() - began

    @contextmanager
    def server(self) -> Iterator[ServerProcess]:
        """A server that runs inside the `with`."""
        with self._site.server("server") as server:
            yield server
            server.process.terminate()
            server.process.wait(PATIENCE)

    def close(self) -> None:
        self._feed.close()


def shared(root: Path, kafka: LocalKafka, count: int, changes: int) -> tuple[float, float]:
    """What `count` subscriptions of one topic cost for so many changes, CPU seconds; and for no changes, a second.

    Each has a share of the keys, so that what the sinks are given is as much as one is given without a filter.
    """
    stage = Stage(root, kafka)
    names = [f"s{number}" for number in range(count)]
    for number, name in enumerate(names):
        stage.subscribe(name, where=f"id % {count} = {number}")
    stage.publish(count)
    with stage.server() as server:
        began, pid = time.monotonic(), server.process.pid
        stage.until_read(server, *names)
        started, use = time.monotonic() - began, use_of(pid)
        print(
            f"{count:>4} subscriptions: started in {started:.0f} s, {use.cpu:.1f} CPU s; {use.memory >> 20} MiB, "
            f"{use.threads} threads, {use.sockets} sockets",
            flush=True,
        )
        idle = _idle(pid)
        before = use_of(pid).cpu
        stage.publish(changes)
        passed = stage.until_read(server, *names)
        busy = use_of(pid).cpu - before
        print(f"{'':>4} {changes:,} changes: {busy:.1f} CPU s in {passed:.0f} s; idle: {idle:.3f} CPU s/s", flush=True)
    stage.close()
    return busy, idle


def _idle(pid: int, seconds: float = 30.0) -> float:
    """CPU seconds a second while nothing is published."""
    before, began = use_of(pid).cpu, time.monotonic()
    threading.Event().wait(seconds)
    return (use_of(pid).cpu - before) / (time.monotonic() - began)


def isolated(root: Path, kafka: LocalKafka, healthy: int, sick: int) -> list[float]:
    """The lag of healthy subscriptions, round by round, while so many are sick and one sink answers a byte a second."""
    stage = Stage(root, kafka)
    names = [f"h{number}" for number in range(healthy)]
    with _dripping() as url:
        for name in names:
            stage.subscribe(name)
        for number in range(sick):
            stage.subscribe(f"down{number}", {"type": "sql", "url": DOWN})
        if sick:
            stage.subscribe("dripping", {"type": "http", "url": url})
        stage.publish(10)
        with stage.server() as server:
            stage.until_read(server, *names)
            lags = []
            for _ in range(ROUNDS):
                stage.publish(10)
                lags.append(stage.until_read(server, *names))
            use = use_of(server.process.pid)
            print(
                f"{healthy} healthy, {sick} down{', 1 dripping' if sick else ''}: lag {statistics.median(lags):.2f} s "
                f"(median of {ROUNDS}, {min(lags):.2f} to {max(lags):.2f}); {use.memory >> 20} MiB, {use.threads} "
                f"threads, {use.sockets} sockets",
                flush=True,
            )
    stage.close()
    return lags


@contextmanager
def _dripping() -> Iterator[str]:
    """An HTTP endpoint that answers a byte a second."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            for octet in b"HTTP/1.1 204 No Content\r\n\r\n":
                if over.wait(1.0):
                    return
                self.wfile.write(bytes((octet,)))
                self.wfile.flush()

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/changes"
        finally:
            over.set()
            server.shutdown()


def main(count: int = 50, changes: int = 10_000, healthy: int = 20, sick: int = 10) -> None:
    """Print what is measured, and the two ratios that the goals are about."""
    print(f"{describe()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}\n")
    with TemporaryDirectory() as name, LocalKafka(Path(name) / "kafka") as kafka:
        folder = _folders(Path(name))
        if changes:
            one, many = (shared(folder(), kafka, number, changes) for number in (1, count))
            print(f"{count} against one: {many[0] / one[0]:.1f} times the CPU; idle {many[1] / one[1]:.1f} times\n")
        if healthy:
            alone, beside = (statistics.median(isolated(folder(), kafka, healthy, number)) for number in (0, sick))
            print(f"lag beside sick sinks: {beside / alone:.2f} times")


def _folders(root: Path) -> Callable[[], Path]:
    def new() -> Path:
        folder = root / uuid4().hex
        folder.mkdir()
        return folder

    return new


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
