"""The parts of the demo as child processes: Cassandra, Kafka, the agent, the stream; gone when this process is gone."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Event
from typing import Any, Final

from tailrace.demo.checkpoint import Checkpoint
from tailrace.demo.display import Display
from tailrace.demo.sqlite_file import SqliteFile
from tailrace.demo.tables import KEYSPACE
from tailrace.local import CassandraSettings, KafkaSettings, Services
from tailrace.local.ports import free_port
from tailrace.local.process import Child, Launch, tail
from tailrace_common.java.jars import fetch_sets
from tailrace_schemas.errors import ServiceError

PREFIX: Final = "demo"
PARTITIONS: Final = 2
_START_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 4.0
_TICK_SECONDS: Final = 0.1
Clock = Callable[[], float]


class Parts:
    """Everything that runs, below one directory. `stop` may be called at any moment, and twice."""

    def __init__(self, directory: Path, display: Display, clock: Clock) -> None:
        self.directory = directory
        self._health_port, cql, broker = (free_port("127.0.0.1") for _ in range(3))
        # Settled now, so that the stream can be told before Kafka runs.
        self.services = Services(directory, CassandraSettings(port=cql), KafkaSettings(port=broker))
        self._addresses = {"cassandra": f"127.0.0.1:{cql}", "kafka": f"127.0.0.1:{broker}"}
        self.sqlite = SqliteFile(directory / "copy.db")
        self.checkpoint = Checkpoint(directory / "checkpoint")
        self.settings = directory / "tailrace.toml"
        self._display = display
        self._clock = clock
        self._children: list[Child] = []
        self._pause = Event()
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="demo")

    def fetch(self) -> None:
        """Fetch what is not there yet."""
        self._result(self._pool.submit(fetch_sets, "cassandra", "kafka", "spark", progress=self._display.fetched))

    def start(self, prepare: Callable[[], None]) -> None:
        """Start all of it, as much as possible at once; `prepare` runs when Cassandra is up. Raises ServiceError."""
        self.settings.write_text(self._settings())
        for service in self.services.all:
            self._display.part(service.name, "starting")
        up = [self._pool.submit(self._up, service.name, service.start) for service in self.services.all]
        self._run("stream")  # Spark takes the longest, and needs Kafka last
        self._result(*up)
        self._run("agent")
        self._result(self._pool.submit(prepare))
        self._await("agent", self._agent_ready, f"health at http://127.0.0.1:{self._health_port}/status")
        self._await("stream", lambda: self.checkpoint.started, str(self.sqlite.path))

    def check(self) -> None:
        """Raise ServiceError, with the end of the log, when one of them has ended by itself."""
        for service in self.services.all:
            service.require_running()
        for child in self._children:
            self._check(child)

    def stop(self) -> None:
        """End everything: what writes first, then, at once, what it writes to: nobody starts on that data again."""
        wait([self._pool.submit(child.stop) for child in self._children])
        wait([self._pool.submit(service.kill) for service in self.services.all])
        self._pool.shutdown()

    @property
    def logs(self) -> dict[str, Path]:
        """The log file of each part."""
        logs = {service.name: service.log for service in self.services.all}
        return logs | {child.launch.name: child.launch.log for child in self._children}

    def _up(self, name: str, start: Callable[[], object]) -> None:
        start()
        self._display.part(name, "running", self._addresses[name])

    def _run(self, name: str) -> None:
        self._display.part(name, "starting")
        launch = Launch(
            name=name,
            command=(sys.executable, "-c", _PROGRAM, name, "-c", str(self.settings)),
            directory=self.directory,
            address="",
            port=0,
            ready_line="",
            stop_seconds=_STOP_SECONDS,
        )
        self._children.append(Child.start(launch))

    def _await(self, name: str, ready: Callable[[], bool], where: str) -> None:
        child = next(child for child in self._children if child.launch.name == name)
        self.until(ready, _START_SECONDS, f"{name} was not ready", child)
        self._display.part(name, "running", where)

    def until(self, condition: Callable[[], bool], seconds: float, trouble: str, part: Child | None = None) -> None:
        """Wait until it holds, the screen kept alive. Raises ServiceError after so long, or when a part has ended."""
        deadline = self._clock() + seconds
        while not condition():
            if part is None:
                self.check()
            else:
                self._check(part)
            if self._clock() > deadline:
                quoted = "" if part is None else f" Its log is {part.launch.log}, which ends:\n{tail(part.launch.log)}"
                raise ServiceError(f"{trouble} after {seconds:.0f} s.{quoted}")
            self._display.refresh()
            self._pause.wait(_TICK_SECONDS)

    def _check(self, child: Child) -> None:
        if not child.running:
            log = child.launch.log
            raise ServiceError(f"{child.launch.name} has ended. Its log is {log}, which ends:\n{tail(log)}")

    def _result(self, *futures: Future[Any]) -> None:
        """Wait for all, or for the first that fails, the screen kept alive."""
        pending = set[Future[Any]](futures)
        while pending:
            done, pending = wait(pending, timeout=_TICK_SECONDS)
            for future in done:
                future.result()
            self._display.refresh()

    def _agent_ready(self) -> bool:
        connection = HTTPConnection("127.0.0.1", self._health_port, timeout=1.0)
        try:
            connection.request("GET", "/health/ready")
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    def _settings(self) -> str:
        """The tailrace.toml of agent and stream. JSON's strings, numbers and lists are TOML's too."""
        cassandra = self.services.cassandra
        host, port = self._addresses["cassandra"].split(":")
        sections: dict[str, dict[str, object]] = {
            "cluster": {"contact_points": [host], "port": int(port)},
            "agent": {
                "cdc_raw_directory": str(cassandra.cdc_raw),
                "commitlog_directory": str(cassandra.commitlog),
                "spool_directory": str(self.directory / "spool"),
                "poll_seconds": 0.2,
                "health_port": self._health_port,
            },
            "kafka": {'"bootstrap.servers"': self._addresses["kafka"]},
            "topics": {"prefix": PREFIX, "partitions": PARTITIONS},
            "tables": {"include": [f"{KEYSPACE}.*"]},
            "stream": {"snapshot": "never", "checkpoint": str(self.directory / "checkpoint"), "trigger_seconds": 0.2},
            "stream.spark": {
                '"spark.master"': "local[2]",
                '"spark.driver.extraJavaOptions"': "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",  # starts sooner
            },
            "sink.copy": {"type": "sql", "url": f"sqlite:///{self.sqlite.path}"},
        }
        return "\n".join(
            f"[{name}]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in values.items()) + "\n"
            for name, values in sections.items()
        )


_PROGRAM: Final = "from tailrace.cli.main import run; run()"
