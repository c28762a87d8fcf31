"""Images built with buildah and run with podman, on a base that mmdebstrap makes of the machine's own packages.

No engine and no registry is needed. Layers stay in build/containers for the next run, or where
TAILRACE_TEST_CONTAINERS says.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import yaml

from tailrace_common.java.jars import find_repository
from tests.integration.deploy.tools import run

ROOT: Final = Path(__file__).resolve().parents[3]
PROGRAMS: Final = ("buildah", "podman", "mmdebstrap", "runc")
_SECONDS: Final = 3000.0
# What the build needs of the machine to reach packages, where the machine needs it: pip's settings and authorities.
_MACHINE: Final = ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
# Without limits of its own podman raises ours, which it may not.
CONFIGURATION: Final = """\
[containers]
netns = "host"
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


@dataclass(frozen=True, slots=True)
class Podman:
    """Images and containers below a directory."""

    directory: Path

    @classmethod
    def open(cls) -> Podman:
        directory = Path(os.environ.get("TAILRACE_TEST_CONTAINERS") or ROOT / "build" / "containers")
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "containers.conf").write_text(CONFIGURATION)
        return cls(directory)

    def command(self, program: str, *arguments: str) -> list[str]:
        """A command line of buildah or podman on this directory."""
        storage = ("--root", f"{self.directory}/storage", "--runroot", f"{self.directory}/run")
        return [program, *storage, "--storage-driver", "overlay", *arguments]

    def run(self, program: str, *arguments: str, timeout: float = 300) -> str:
        """Its output."""
        configuration = str(self.directory / "containers.conf")
        return run(*self.command(program, *arguments), timeout=timeout, CONTAINERS_CONF=configuration)

    def build(self, target: str, release: str | None = None) -> str:
        """An image of the Dockerfile, on a release of Debian (None: the machine's own); its name."""
        arguments = {
            "BASE": self.base(release),
            "BUILD_PACKAGES": "gcc libc6-dev python3-dev",
            "TAILRACE_MAVEN_REPOSITORY": find_repository().root,
            "MYPYC_OPT_LEVEL": "0",
            "SPARK_VERSION": version("pyspark"),
        }
        name = f"localhost/tailrace-{target}{f'-{release}' if release else ''}"
        self.build_image(ROOT / "deploy" / "Dockerfile", ROOT, target, name, arguments)
        return name

    def build_image(self, file: Path, context: Path, target: str, name: str, arguments: Mapping[str, str]) -> None:
        """An image of a Dockerfile."""
        options = [word for argument, value in arguments.items() for word in ("--build-arg", f"{argument}={value}")]
        options += [word for path in _MACHINE if Path(path).exists() for word in ("-v", f"{path}:{path}:ro")]
        style = ("--isolation", "chroot", "--format", "docker", "--layers", "--target", target, "-t", name)
        self.run("buildah", "bud", *style, *options, "-f", str(file), str(context), timeout=_SECONDS)

    def megabytes(self, image: str) -> float:
        """The size of an image."""
        return int(self.run("podman", "image", "inspect", "--format", "{{.Size}}", image)) / 1e6

    def base(self, release: str | None = None) -> str:
        """The name of a base image, which is made where there is none yet."""
        name = f"tailrace-base-{release}" if release else "tailrace-base"
        if name not in self.run("podman", "images", "--format", "{{.Repository}}").replace("localhost/", "").split():
            archive = self.directory / f"{name}.tar"
            packages = "--include=python3,python3-venv,ca-certificates"
            # Lists of a release that is not out yet count for a week, and a mirror may be older.
            ageless = ('--aptopt=Acquire::Check-Valid-Until "false"',) if release else ()
            words = ("--variant=minbase", packages, *ageless, release or _release(), str(archive), *_sources(release))
            run("mmdebstrap", *words, timeout=_SECONDS)
            self.run("podman", "import", str(archive), name, timeout=600)
            archive.unlink()
        return f"localhost/{name}"

    @contextmanager
    def container(self, image: str, *arguments: str, options: tuple[str, ...] = ()) -> Iterator[Container]:
        """A container on the machine's network, closed as docs/deployment/containers.md says; removed at the exit."""
        name = f"tailrace-{uuid4().hex[:12]}"
        closed = ("--read-only", "--tmpfs", "/tmp:exec,mode=1777", "--cap-drop", "all")  # noqa: S108 - the container's
        # Checks of health are timers of systemd, which may not run here.
        safe = ("--security-opt", "no-new-privileges", "--network", "host", "--no-healthcheck")
        self.run("podman", "run", "-d", "--name", name, *closed, *safe, *options, image, *arguments)
        try:
            yield Container(self, name)
        finally:
            self.run("podman", "rm", "-f", "-t", "0", name)

    @contextmanager
    def pod(self, folder: Path, pod: Mapping[str, Any], settings: Mapping[str, Any]) -> Iterator[list[Container]]:
        """The containers of a Kubernetes pod on the machine's network, in the manifest's order; removed at the exit.

        `settings` is the ConfigMap of its volumes. Both are written to `folder`.
        """
        manifest, configuration = folder / "pod.yaml", folder / "settings.yaml"
        manifest.write_text(yaml.safe_dump(dict(pod)))
        configuration.write_text(yaml.safe_dump(dict(settings)))
        names = [f"{pod['metadata']['name']}-{container['name']}" for container in pod["spec"]["containers"]]
        try:
            self.run("podman", "play", "kube", "--configmap", str(configuration), str(manifest))
            yield [Container(self, name) for name in names]
        finally:
            self.run("podman", "pod", "rm", "--force", "--ignore", "-t", "0", pod["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class Container:
    """One that runs, or has run."""

    podman: Podman
    name: str

    def execute(self, *command: str) -> str:
        """The output of a command in it."""
        return self.podman.run("podman", "exec", self.name, *command)

    def log(self) -> str:
        """Both of its outputs."""
        environ = {**os.environ, "CONTAINERS_CONF": str(self.podman.directory / "containers.conf")}
        command = self.podman.command("podman", "logs", self.name)
        return subprocess.run(command, capture_output=True, text=True, env=environ).stderr

    def ended(self) -> bool:
        """Whether it has ended."""
        return self._state("Running") == "false"

    def stop(self) -> int:
        """SIGTERM, and its exit code."""
        self.podman.run("podman", "stop", "-t", "150", self.name)
        return int(self._state("ExitCode"))

    def _state(self, field: str) -> str:
        return self.podman.run("podman", "inspect", "--format", f"{{{{.State.{field}}}}}", self.name).strip()


def _sources(release: str | None) -> list[str]:
    """Where mmdebstrap has packages from: this machine's lists; none of them: its own."""
    lists = Path("/etc/apt/sources.list.d/debian.sources")
    if not lists.exists():
        return []
    if release is None:
        return [str(lists)]
    mirror = next(line.split()[1] for line in lists.read_text().splitlines() if line.startswith("URIs:"))
    return [f"deb {mirror} {release} main"]


def _release() -> str:
    values = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    return values["VERSION_CODENAME"].strip('"')
