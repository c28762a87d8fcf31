"""A real Kafka Connect worker with Debezium's JDBC sink and transforms; and a port for PostgreSQL's Unix socket."""

from __future__ import annotations

import os
import socket
import socketserver
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from sqlalchemy.engine import make_url

from tailrace.local.kafka import java_properties
from tailrace.local.ports import settle_ports
from tailrace.local.process import Launch
from tailrace.local.service import LocalService
from tailrace_common.java.find import find_java
from tests.jars import fetch_test_sets

_BYTES: Final = 1 << 16
_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"


class LocalConnect(LocalService):
    """One worker below `directory`, running these connectors from its start: by name, their settings."""

    def __init__(
        self,
        directory: Path,
        bootstrap: str,
        connectors: Mapping[str, Mapping[str, str]],
        *,
        java_options: Sequence[str] = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    ) -> None:
        """The worker's `java_options` are those of a short life, unless others are given."""
        super().__init__("connect", directory)
        self._java_options = java_options
        self._bootstrap = bootstrap
        self._connectors = connectors

    def _prepare(self) -> Launch:
        address = "127.0.0.1"
        port = settle_ports(self.directory, address, {"rest": 0})["rest"]
        worker = {
            "bootstrap.servers": self._bootstrap,
            "key.converter": _JSON,
            "key.converter.schemas.enable": "true",
            "value.converter": _JSON,
            "value.converter.schemas.enable": "true",
            "consumer.isolation.level": "read_committed",
            "consumer.auto.offset.reset": "earliest",
            "offset.storage.file.filename": str(self.directory / "offsets"),
            "offset.flush.interval.ms": "500",
            "plugin.discovery": "service_load",
            "listeners": f"http://{address}:{port}",
        }
        files = [self._written("worker", worker)]
        for name, settings in self._connectors.items():
            files.append(self._written(name, {"name": name, "tasks.max": "1", **settings}))
        java = find_java()
        classpath = os.pathsep.join(map(str, fetch_test_sets("connect")))
        log = "-Dorg.slf4j.simpleLogger"
        options = (*self._java_options, f"{log}.defaultLogLevel=warn")
        ready = (f"{log}.log.org.apache.kafka.connect=info",)
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        return Launch(
            name=self.name,
            command=(str(java.program), *options, *ready, "-cp", classpath, main, *map(str, files)),
            directory=self.directory,
            address=address,
            port=port,
            ready_line="Created connector",
        )

    def _written(self, name: str, settings: Mapping[str, str]) -> Path:
        path = self.directory / f"{name}.properties"
        path.write_text(java_properties(settings), "ascii")
        return path


class _ToSocket(socketserver.BaseRequestHandler):
    """Passes one connection on to a Unix socket, both ways, until one end closes."""

    def handle(self) -> None:
        with socket.socket(socket.AF_UNIX) as other:
            other.connect(self.server.path)  # type: ignore[attr-defined]  # `port_of` gives it one
            back = threading.Thread(target=_pass_on, args=(other, self.request))
            back.start()
            _pass_on(self.request, other)
            back.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_BYTES):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def jdbc_sink(url: str) -> Iterator[dict[str, str]]:
    """The settings of Debezium's JDBC sink that upserts into a PostgreSQL database of a Unix socket, while inside."""
    database = make_url(url)
    with port_of(Path(str(database.query["host"])) / ".s.PGSQL.5432") as port:
        yield {
            "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
            "connection.url": f"jdbc:postgresql://127.0.0.1:{port}/{database.database}",
            "connection.username": database.username or "postgres",
            "connection.password": "",
            "insert.mode": "upsert",
            "delete.enabled": "true",
            "primary.key.mode": "record_key",
            "schema.evolution": "basic",
        }


@contextmanager
def port_of(path: Path) -> Iterator[int]:
    """A port on loopback that leads to a Unix socket: Java knows no others' sockets."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _ToSocket) as server:
        server.path = str(path)  # type: ignore[attr-defined]  # for the handlers
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


__all__ = ["LocalConnect", "jdbc_sink"]
