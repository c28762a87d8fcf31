"""`tailrace server` as processes of their own on one meta database, and the commands that operators give."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tailrace.local import LocalKafka
from tailrace.local.ports import free_port
from tailrace_common.settings import load_settings
from tailrace_server.cli.opening import opened
from tailrace_server.operations.asking import Asked
from tailrace_server.operations.operations import DirectOperations
from tests.integration.processes import PROGRAM, CommandProcess
from tests.integration.streams import StreamProcess
from tests.services.class_archive import quick_java_lines

LEASE_SECONDS = 4


class ServerProcess(StreamProcess):
    """One server; several of a site share its settings."""

    def __init__(self, site: Site, name: str, *words: str, program: tuple[str, ...] = PROGRAM) -> None:
        self.command = ("server", *words)
        CommandProcess.__init__(self, site.directory / f"{name}.log")
        self._directory = site.directory
        self._program = program
        self._config = site.config


def toml(value: object) -> str:
    """A value as TOML, a mapping in a line."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + " }"
    return json.dumps(value)


class Site:
    """A meta database with its settings, and the commands on it."""

    def __init__(
        self,
        directory: Path,
        kafka: LocalKafka,
        prefix: str,
        url: str,
        sections: Mapping[str, Mapping[str, object]] | None = None,
        **server: object,
    ) -> None:
        """`sections` are more ones of the settings, `server` more of [server]."""
        self.directory = directory
        self.kafka, self.prefix = kafka, prefix
        self.config = directory / "tailrace.toml"
        port = "" if "port" in server else f"port = {free_port('127.0.0.1')}\n"
        server = {"snapshot": "never", "lease_seconds": LEASE_SECONDS, **server}  # most have no Cassandra
        more = "".join(f"{name} = {json.dumps(value)}\n" for name, value in server.items())
        others = "".join(
            f"[{section}]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
            for section, values in (sections or {}).items()
        )
        self.config.write_text(
            f'[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n[topics]\nprefix = "{prefix}"\n'
            f'[server]\nurl = "{url}"\ncheckpoints = "{directory}/checkpoints"\n'
            f"longest_pause_seconds = 2\n{port}{more}"
            f'[stream]\ntrigger_seconds = 0\nexecution = "driver"\n'
            f'[stream.spark]\n"spark.master" = "local[2]"\n"spark.driver.memory" = "512m"\n{quick_java_lines()}{others}'
        )

    def declare(self, name: str, section: Mapping[str, object]) -> str:
        """A target of servers that are started from now on; its name."""
        lines = "".join(f"{key} = {toml(value)}\n" for key, value in section.items() if value is not None)
        with self.config.open("a") as file:
            file.write(f"[sink.{name}]\n{lines}")
        return name

    def server(self, name: str, *words: str, both: bool = False, program: tuple[str, ...] = PROGRAM) -> ServerProcess:
        """One that is not started yet: a worker alone, unless `words` say another, or it has `both` processes.

        `program` is what Python is told to run as `tailrace`.
        """
        return ServerProcess(self, name, *(() if both else words or ("--role", "worker")), program=program)

    def tailrace(self, *words: str, code: int = 0) -> list[dict[str, Any]]:
        """What a command prints, as JSON; it has to end with that exit code."""
        answer = self.run(*words)
        assert answer.returncode == code, answer.stderr
        return [json.loads(line) for line in answer.stdout.splitlines()]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command, whatever comes of it."""
        return subprocess.run(
            [sys.executable, *PROGRAM, "--log-level", "warning", *words, "-c", str(self.config)],
            capture_output=True,
            text=True,
            cwd=self.directory,
            env=dict(os.environ),
            timeout=600,
            check=False,
        )

    @contextmanager
    def operations(self) -> Iterator[DirectOperations]:
        """The operations in this process, which is quicker than a command."""
        settings = load_settings(self.config, {})
        with opened(settings) as (_, subscriptions):
            yield DirectOperations(subscriptions, settings, "test")

    def subscribe(self, name: str, table: str, url: str, **more: Any) -> None:
        """A subscription into a SQL database, which is a target of its name from now on."""
        target = self.declare(name, {"type": "sql", "url": url})
        with self.operations() as operations:
            operations.subscribe(Asked(table=table, name=name, target=target, **more))

    def states(self) -> dict[str, dict[str, Any]]:
        """All subscriptions by name."""
        with self.operations() as operations:
            return {row["name"]: row for row in operations.all()}

    def owners(self) -> set[str | None]:
        """Who runs the subscriptions; None: nobody."""
        return {row["owner"] for row in self.states().values()}
