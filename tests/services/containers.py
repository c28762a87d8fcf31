"""The local services in containers: the same classes and settings, run from the official images by testcontainers.

The service's directory is mounted at its own path and the host's network is used, so paths, ports and files are the
same as those of child processes. Needs an engine on this machine.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from testcontainers.core.container import DockerContainer

from tailrace.local import LocalCassandra, LocalKafka
from tailrace.local.kafka import cluster_id
from tailrace.local.ports import is_open
from tailrace.local.process import Launch, Running, start_failure
from tests.support.waiting import until

if TYPE_CHECKING:
    from docker.models.containers import Container

CASSANDRA_IMAGE = "cassandra:5.0.9"
KAFKA_IMAGE = "apache/kafka:4.3.1"


class ContainerCassandra(LocalCassandra):
    """LocalCassandra, in a container."""

    def _command(self) -> tuple[str, ...]:
        as_root = ("-R",) if os.getuid() == 0 else ()
        configuration = (self.directory / "conf" / "cassandra.yaml").as_uri()
        storage = self.directory / "data"
        return ("cassandra", "-f", *as_root, f"-Dcassandra.config={configuration}", f"-Dcassandra.storagedir={storage}")

    def _run(self, launch: Launch) -> Running:
        heap = {"MAX_HEAP_SIZE": f"{self.settings.heap_mib}m", "HEAP_NEWSIZE": "128m"}
        return Contained(launch, CASSANDRA_IMAGE, {**heap, "CASSANDRA_LOG_DIR": str(self.directory)})


class ContainerKafka(LocalKafka):
    """LocalKafka, in a container."""

    def _command(self) -> tuple[str, ...]:
        tools = "/opt/kafka/bin"
        form = f'{tools}/kafka-storage.sh format --ignore-formatted -t {cluster_id()} -c "$1"'
        return (
            "/bin/sh",
            "-c",
            f'{form} && exec {tools}/kafka-server-start.sh "$1"',
            "kafka",
            str(self._configuration),
        )

    def _run(self, launch: Launch) -> Running:
        heap = f"-Xms128m -Xmx{self.settings.heap_mib}m"
        return Contained(launch, KAFKA_IMAGE, {"KAFKA_HEAP_OPTS": heap, "LOG_DIR": str(self.directory / "logs")})


class Contained:
    """A server in a container, as tailrace.local.process.Running."""

    def __init__(self, launch: Launch, image: str, environment: dict[str, str]) -> None:
        directory = str(launch.directory)
        self._launch = launch
        self._container = (
            DockerContainer(image, network_mode="host", user=f"{os.getuid()}:{os.getgid()}", entrypoint="")
            .with_envs(**environment)
            .with_volume_mapping(directory, directory, "rw")
            .with_command(list(launch.command))
        )
        self._container.start()

    @property
    def pid(self) -> int:
        """The process id that the engine knows."""
        wrapped = self._wrapped
        wrapped.reload()
        return int(wrapped.attrs["State"]["Pid"])

    @property
    def running(self) -> bool:
        """Whether the container runs."""
        self._wrapped.reload()
        return bool(self._wrapped.status == "running")

    def await_ready(self) -> None:
        """As Child.await_ready."""
        launch = self._launch

        def is_ready() -> bool:
            if not self.running:
                raise start_failure(launch, "ended at its start")
            return launch.ready_line.encode() in self._keep_log() and is_open(launch.address, launch.port)

        try:
            until(is_ready, f"{launch.name} to be ready", launch.start_seconds)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after the launch's `stop_seconds`."""
        if self.running:
            self._wrapped.stop(timeout=int(self._launch.stop_seconds))
            self._keep_log()

    def kill(self) -> None:
        """SIGKILL."""
        if self.running:
            self._wrapped.kill()
            self._wrapped.wait()
            self._keep_log()

    @property
    def _wrapped(self) -> Container:
        return self._container.get_wrapped_container()

    def _keep_log(self) -> bytes:
        output = b"".join(self._container.get_logs())
        Path(self._launch.log).write_bytes(output)
        return output
