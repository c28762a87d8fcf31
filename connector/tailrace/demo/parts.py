"""The services of the demo: those of `tailrace local`, an agent and a stream; gone when this process is gone."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tailrace.demo.script import KEYSPACE, TABLES
from tailrace.local import CassandraSettings, KafkaSettings, Services
from tailrace.local.ports import free_port
from tailrace.local.process import Launch, run_to_end
from tailrace.local.service import LocalService
from tailrace.local.services import await_all, stop_all
from tailrace_common.cli.console import say

PREFIX: Final = "demo"
PARTITIONS: Final = 2
_ADDRESS: Final = "127.0.0.1"
_COMPARE_SECONDS: Final = 300.0
_SETTINGS: Final = f"""\
[cluster]
contact_points = ["{_ADDRESS}"]
port = {{cql}}
[agent]
cdc_raw_directory = {{cdc_raw}}
commitlog_directory = {{commitlog}}
spool_directory = {{spool}}
poll_seconds = 0.2
health_port = {{health}}
[kafka]
"bootstrap.servers" = "{{kafka}}"
[topics]
prefix = "{PREFIX}"
partitions = {PARTITIONS}
[tables]
include = ["{KEYSPACE}.*"]
[stream]
snapshot = "never"
checkpoint = {{checkpoint}}
trigger_seconds = 0.2
metrics_port = {{metrics}}
[stream.spark]
"spark.master" = "local[2]"
# Spark starts sooner with these.
"spark.driver.extraJavaOptions" = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
[sink.copy]
type = "sql"
url = {{copy}}
"""


class Program(LocalService):
    """`tailrace NAME` beside the services, ready when its log has `ready_line` and its port is open."""

    def __init__(self, name: str, settings: Path, port: int, ready_line: str) -> None:
        super().__init__(name, settings.parent)
        self._settings = settings
        self._port = port
        self._ready_line = ready_line

    def _prepare(self) -> Launch:
        return Launch(
            name=self.name,
            command=_command(self.name, "-c", str(self._settings)),
            directory=self.directory,
            address=_ADDRESS,
            port=self._port,
            ready_line=self._ready_line,
            start_seconds=300.0,
            stop_seconds=4.0,
        )


class DemoServices:
    """All of them, below one directory. `stop` may be called at any moment."""

    def __init__(self, directory: Path) -> None:
        # Settled now, so that Spark, which takes the longest, can start beside Kafka.
        cql, broker, health, metrics = (free_port(_ADDRESS) for _ in range(4))
        self.services = Services(directory, CassandraSettings(port=cql), KafkaSettings(port=broker))
        self.settings = directory / "tailrace.toml"
        self.copy = directory / "copy.db"
        self.checkpoint = directory / "checkpoint"
        self.kafka = f"{_ADDRESS}:{broker}"
        self.agent = Program("agent", self.settings, health, "publishing as host")
        self.stream = Program("stream", self.settings, metrics, "existing rows:")
        self.where = {
            "cassandra": f"{_ADDRESS}:{cql}",
            "kafka": self.kafka,
            "agent": f"health at http://{_ADDRESS}:{health}/status",
            "stream": str(self.copy),
        }
        self._pool = ThreadPoolExecutor(thread_name_prefix="demo")
        paths = {
            "cdc_raw": self.services.cassandra.cdc_raw,
            "commitlog": self.services.cassandra.commitlog,
            "spool": directory / "spool",
            "checkpoint": self.checkpoint,
            "copy": f"sqlite:///{self.copy}",
        }
        # JSON's strings are TOML's too.
        quoted = {name: json.dumps(str(path)) for name, path in paths.items()}
        text = _SETTINGS.format(cql=cql, kafka=self.kafka, health=health, metrics=metrics, **quoted)
        self.settings.write_text(text)

    @property
    def all(self) -> tuple[LocalService, ...]:
        """All of them."""
        return (*self.services.all, self.agent, self.stream)

    def start(self, prepare: Callable[[], None]) -> None:
        """Start all, as much as possible at once; `prepare` runs before the agent starts. Raises ServiceError."""
        services = {self._pool.submit(self._up, service): service for service in self.services.all}

        def agent() -> None:
            for service in services:
                service.result()
            prepare()
            self._up(self.agent)

        programs = {self._pool.submit(self._up, self.stream): self.stream, self._pool.submit(agent): self.agent}
        await_all({**services, **programs})

    def require_running(self) -> None:
        """Raise ServiceError, with the end of the log, when one of them has ended by itself."""
        for service in self.all:
            service.require_running()

    def compare(self) -> str:
        """Have `tailrace compare` hold the copy against Cassandra; its words. Raises ServiceError where rows differ."""
        say("comparing")
        command = _command("--log-level", "error", *self.compare_words)
        return run_to_end("compare", command, self.settings.parent, _COMPARE_SECONDS)

    @property
    def compare_words(self) -> tuple[str, ...]:
        """The arguments with which `tailrace` compares."""
        return ("compare", *(f"{KEYSPACE}.{name}" for name in TABLES), "-c", str(self.settings))

    def stop(self) -> None:
        """End everything: first what writes, then, at once, what that writes to. Nobody starts on that data again."""
        for _ in range(2):  # the first ends starts that are under way, the second what these had not yet begun
            stop_all((self.stream, self.agent))
            for service in self.services.all:
                service.kill()
            self._pool.shutdown()

    def _up(self, service: LocalService) -> None:
        say(f"{service.name}: starting")
        service.start()
        say(f"{service.name}: running, {self.where[service.name]}")


def _command(*words: str) -> tuple[str, ...]:
    return (sys.executable, "-c", "from tailrace.cli.main import run; run()", *words)
