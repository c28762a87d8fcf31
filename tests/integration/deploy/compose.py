"""docker-compose.yml, run by podman-compose: bridge, DNS, ports, volumes and health checks are podman's.

podman 4 knows no `depends_on` with health, and its timers for checks are systemd's. So `start` does as `docker compose
up --wait`: it starts a service when what it depends on is as the file wants it, and has its check run. `stop` does as
`docker compose stop`.
"""

from __future__ import annotations

import json
import logging
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import yaml

from tests.integration.deploy.podman import CONFIGURATION, ROOT, Podman
from tests.integration.deploy.sandbox import sandbox
from tests.integration.deploy.tools import run
from tests.support.waiting import text_of, until

FILE: Final = ROOT / "docker-compose.yml"
_LOG = logging.getLogger("tailrace.test")
_SECONDS: Final = 900.0
"""How long a service may take until it is healthy: the file's own bounds are for a machine with nothing else to do."""
# Images are those of the other store, which is only read.
_STORAGE: Final = """\
[storage]
driver = "overlay"
graphroot = "{own}/storage"
runroot = "{own}/run"
[storage.options]
additionalimagestores = ["{images}/storage"]
"""


@dataclass(frozen=True, slots=True)
class Compose:
    """The services of the file. Its containers are on a network of their own (`sandbox`)."""

    inside: tuple[str, ...]
    services: Mapping[str, Any]
    started: list[str] = field(default_factory=list)

    def run(self, *arguments: str) -> str:
        """The output of podman-compose."""
        program = str(Path(sys.executable).with_name("podman-compose"))
        return run(*self.inside, program, "-f", str(FILE), *arguments)

    def podman(self, *arguments: str) -> str:
        """The output of podman."""
        return run(*self.inside, "podman", *arguments)

    def execute(self, service: str, *command: str) -> str:
        """The output of a command in a container; unlike docker's `exec`, podman-compose's wants its profile."""
        return self.run(*self._profiles(service), "exec", "-T", service, *command)

    def look(self, service: str, *command: str) -> str:
        """The output of a command in a container; nothing where it fails."""
        try:
            return self.execute(service, *command)
        except AssertionError:
            return ""

    def stop(self) -> float:
        """End all that runs, as the file says, each before what it depends on; the seconds that it took.

        podman-compose ends them all at once, and the network's DNS under those that end last.
        """
        began = time.monotonic()
        while self.started:
            service = self.started.pop()
            self.run(*self._profiles(service), "stop", service)
        return time.monotonic() - began

    def ask(self, *arguments: str) -> str:
        """The output of curl on this machine, which reaches the ports that the file opens."""
        return run(*self.inside, "curl", "-sS", "--fail-with-body", *arguments)

    def start(self, *services: str) -> None:
        """Start these, and what they depend on, in the file's order; each is healthy, or has ended well, at the end."""
        for service in services:
            if service in self.started:
                continue
            self.start(*self.services[service].get("depends_on", {}))
            began = time.monotonic()
            self.run(
                *self._profiles(service),
                "up",
                "-d",
                "--no-build",
                "--no-recreate",
                "--no-deps",
                "--pull=never",
                service,
            )
            self.started.append(service)
            self._settle(service)
            _LOG.info("%s: %.1f s", service, time.monotonic() - began)

    def state(self, service: str) -> dict[str, Any]:
        """What podman says of a container."""
        state: dict[str, Any] = json.loads(self.podman("inspect", "--format", "{{json .State}}", name_of(service)))
        return state

    def log(self, service: str) -> str:
        """The end of a container's outputs."""
        redirected = ("sh", "-c", 'exec podman logs --tail 60 "$0" 2>&1', name_of(service))
        return run(*self.inside, *redirected)

    def wait(self, service: str, condition: Callable[[], bool], every: float = 1.0) -> None:
        """Wait for a condition; fails with the container's log. `every` is in seconds."""
        until(condition, f"{service}: {text_of(condition)}", _SECONDS, state=lambda: self.log(service), every=every)

    def _settle(self, service: str) -> None:
        """Wait until it is healthy, or has ended where it is a job."""
        check = self.services[service].get("healthcheck")
        if check is None:
            self.wait(service, lambda: self._has_ended(service))
            assert self.state(service)["ExitCode"] == 0, f"{service}\n{self.log(service)}"
            return
        self.wait(service, lambda: self._is_healthy(service) or self._has_ended(service), _seconds(check["interval"]))
        assert self.state(service)["Health"]["Status"] == "healthy", f"{service}\n{self.log(service)}"

    def _is_healthy(self, service: str) -> bool:
        """Whether the container's own check succeeds now."""
        checked = ("sh", "-c", 'podman healthcheck run "$0" > /dev/null 2>&1; echo $?', name_of(service))
        return run(*self.inside, *checked).strip() == "0"

    def _has_ended(self, service: str) -> bool:
        # "stopped" until podman has cleaned up behind it, which it may not do by itself without systemd.
        return self.state(service)["Status"] in ("stopped", "exited")

    def _profiles(self, service: str) -> tuple[str, ...]:
        return tuple(f"--profile={profile}" for profile in self.services[service].get("profiles", ()))


def name_of(service: str) -> str:
    """The container of a service."""
    return f"tailrace_{service}_1"


def services_of_the_file() -> dict[str, Any]:
    """Name -> service."""
    services: dict[str, Any] = yaml.safe_load(FILE.read_text())["services"]
    return services


def command_of(file: Path, part: str) -> list[str]:
    """The arguments of the one `docker compose` command in a file that has this in it, without the remark behind it."""
    lines = (line.removeprefix("#").strip() for line in file.read_text().splitlines())
    [command] = [line for line in lines if line.startswith("docker compose ") and part in line]
    return shlex.split(re.split(r"\s{2,}", command)[0])[2:]


def _seconds(duration: str) -> float:
    return float(duration.removesuffix("s"))


@contextmanager
def composed(podman: Podman, images: Mapping[str, str]) -> Iterator[Compose]:
    """The file with these images for its variables. Containers, volumes and network are gone at the exit."""
    own = podman.directory / f"compose-{uuid4().hex[:8]}"
    own.mkdir()
    configuration, storage = own / "containers.conf", own / "storage.conf"
    configuration.write_text(f'{CONFIGURATION}[network]\nnetwork_config_dir = "{own}/networks"\n')
    storage.write_text(_STORAGE.format(own=own, images=podman.directory))
    environ = {
        "CONTAINERS_CONF": str(configuration),
        "CONTAINERS_STORAGE_CONF": str(storage),
        "DISABLE_HC_SYSTEMD": "true",  # the check is kept, without a timer
        **images,
    }
    try:
        with sandbox() as inside:
            words = (f"{name}={value}" for name, value in environ.items())
            yield Compose((*inside, "env", *words), services_of_the_file())
    finally:
        shutil.rmtree(own)
