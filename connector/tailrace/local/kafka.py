"""A real Kafka 4.3.1 broker on a loopback address: KRaft, one node, broker and controller in one process."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tailrace.local.ports import settle_ports
from tailrace.local.process import Launch, run_to_end
from tailrace.local.service import LocalService
from tailrace_common.java.find import find_java
from tailrace_common.java.jars import fetch_sets
from tailrace_schemas.errors import ServiceError


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """How the broker is set up. `port` and `controller_port` 0: a free one. `properties` is laid over
    server.properties, key by key; `jvm` follows the other JVM options. Topics are never created by use.
    """

    address: str = "127.0.0.1"
    port: int = 0
    controller_port: int = 0
    heap_mib: int = 512
    log_level: str = "warn"
    properties: Mapping[str, str] = field(default_factory=dict)
    jvm: tuple[str, ...] = ()


class LocalKafka(LocalService):
    """One broker below `directory`. `start` returns when clients may connect to `bootstrap`."""

    def __init__(self, directory: Path, settings: KafkaSettings | None = None) -> None:
        super().__init__("kafka", directory)
        self.settings = settings or KafkaSettings()
        self.address = self.settings.address
        self._ports: dict[str, int] = {}

    @property
    def port(self) -> int:
        """The port for clients. Raises ServiceError before the first start, when it is not settled yet."""
        if not self._ports:
            raise ServiceError(f"kafka in {self.directory} has no port before it is started")
        return self._ports["broker"]

    @property
    def bootstrap(self) -> str:
        """What clients take as `bootstrap.servers`."""
        return f"{self.address}:{self.port}"

    def _prepare(self) -> Launch:
        settings = self.settings
        ports = {"broker": settings.port, "controller": settings.controller_port}
        self._ports = settle_ports(self.directory, settings.address, ports)
        properties = server_properties(settings, self.directory, **self._ports)
        self._configuration.write_text(java_properties(properties), "ascii")
        return Launch(
            name=self.name,
            command=self._command(),
            directory=self.directory,
            address=settings.address,
            port=self._ports["broker"],
            ready_line="Kafka Server started",
        )

    @property
    def _configuration(self) -> Path:
        return self.directory / "server.properties"

    def _command(self) -> tuple[str, ...]:
        """The broker's command; formats the data directory before, when it is new."""
        classpath = ":".join(map(str, fetch_sets("kafka")))
        java = (str(find_java().program), *jvm_options(self.settings), "-cp", classpath)
        configuration = str(self._configuration)
        if not (self.directory / "data" / "meta.properties").is_file():
            tool = ("kafka.tools.StorageTool", "format", "-t", cluster_id(), "-c", configuration)
            run_to_end("kafka-format", (*java, *tool), self.directory)
        return (*java, "kafka.Kafka", configuration)


def cluster_id() -> str:
    """16 bytes in base64url without padding; never with a leading '-', which the format tool takes for a flag."""
    return base64.urlsafe_b64encode(b"\0" + secrets.token_bytes(15)).decode("ascii").rstrip("=")


def server_properties(settings: KafkaSettings, directory: Path, broker: int, controller: int) -> dict[str, str]:
    """The content of server.properties: one node, so every internal topic has one replica; small buffers."""
    address = settings.address
    placed = {
        "controller.quorum.voters": f"1@{address}:{controller}",
        "listeners": f"PLAINTEXT://{address}:{broker},CONTROLLER://{address}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{address}:{broker}",
        "log.dirs": str(directory / "data"),
    }
    return {**_FIXED, **placed, **settings.properties}


def java_properties(properties: Mapping[str, str]) -> str:
    """A java.util.Properties file: backslashes doubled, everything but printable ASCII as \\uXXXX."""
    return "".join(f"{_escape(key)}={_escape(value)}\n" for key, value in properties.items())


def jvm_options(settings: KafkaSettings) -> tuple[str, ...]:
    """The JVM's options: a small heap, the quick compiler only, the log on standard error."""
    log = "-Dorg.slf4j.simpleLogger"
    return (
        f"-Xms{min(128, settings.heap_mib)}m",
        f"-Xmx{settings.heap_mib}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        f"{log}.defaultLogLevel={settings.log_level}",
        f"{log}.showDateTime=true",
        f"{log}.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss,SSS",
        f"{log}.log.kafka.server.KafkaRaftServer=info",  # says when it is ready
        *settings.jvm,
    )


def _escape(text: str) -> str:
    units = text.replace("\\", "\\\\").encode("utf-16-be")
    codes = (int.from_bytes(units[start : start + 2], "big") for start in range(0, len(units), 2))
    return "".join(chr(code) if 32 <= code < 127 else f"\\u{code:04x}" for code in codes)


_FIXED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    "num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    # What a dead producer left open is aborted a second after its timeout, not ten.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": str(8 * 1024 * 1024),
    "log.index.size.max.bytes": str(1024 * 1024),
    # After a crash the broker waits for the end of the session that it had: 9 s by default.
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "4",
}
