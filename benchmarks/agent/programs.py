"""The programs that are measured: where they read, their settings, how they are started."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from benchmarks.agent.processes import Measured
from tailrace.local.cassandra import LocalCassandra
from tailrace_common.build import describe


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a program is to do: read this `cdc_raw` with the schema of this node, and write to topics of a prefix.

    `live`: the directory is the node's own, and the node writes to it meanwhile.
    """

    directory: Path
    node: LocalCassandra
    cdc_raw: Path
    bootstrap: str
    prefix: str
    live: bool

    def topic(self, table: str) -> str:
        """Both name a table's topic alike."""
        return f"{self.prefix}.{table}"


class Program(Protocol):
    """A program that publishes what stands in cdc_raw."""

    @property
    def name(self) -> str:
        """As the tables have it, with its version."""

    @property
    def makes_topics(self) -> bool:
        """Whether it creates the topics that it needs."""

    def start(self, task: Task) -> Measured:
        """Begin; its files go to the task's directory."""

    def ready(self, run: Measured) -> float | None:
        """Seconds from its start to when its producer could take the first record, if it says so."""


class Tailrace:
    """`tailrace agent`, of the code that this Python imports, with its default settings."""

    makes_topics = True

    @property
    def name(self) -> str:
        """Version, and whether it is compiled."""
        return describe()

    def start(self, task: Task) -> Measured:
        """Run it in a Python of its own."""
        settings: dict[str, dict[str, object]] = {
            "cluster": {"contact_points": [task.node.address], "port": task.node.port},
            "agent": {"cdc_raw_directory": str(task.cdc_raw)},
            "kafka": {"bootstrap.servers": task.bootstrap},
            "topics": {"prefix": task.prefix},
        }
        file = task.directory / "tailrace.toml"
        file.write_text(_toml(settings))
        command = (
            sys.executable,
            "-c",
            "from tailrace.cli.main import run; run()",
            "--log-format",
            "json",
            "agent",
            "-c",
            str(file),
        )
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TAILRACE_")}
        return Measured(command, task.directory, environment)

    def ready(self, run: Measured) -> float | None:
        """Its log says when."""
        for line in run.log.read_text("utf-8", "replace").splitlines():
            if '"publishing as host' in line:
                return datetime.fromisoformat(json.loads(line)["time"]).timestamp() - run.began_at
        return None


def _toml(settings: dict[str, dict[str, object]]) -> str:
    """Strings, numbers, booleans and lists of strings look the same in JSON and in TOML."""
    return "\n".join(
        "\n".join([f"[{section}]", *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in values.items())])
        for section, values in settings.items()
    )
