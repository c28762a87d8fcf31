"""A real RabbitMQ for tests: Debian's rabbitmq-server as a child process on loopback, stopped with the process."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import pika

from tailrace.local.ports import free_port
from tests.support.waiting import until
from tests.tied import tie

USER: Final = "tailrace"
PASSWORD: Final = "hunter2"  # noqa: S105 - of a server on loopback, for as long as the tests run
_SECONDS: Final = 300  # a busy machine has taken more than 90 until it listened
_LIBRARY: Final = Path("/usr/lib/rabbitmq/lib")


def missing() -> str | None:
    """Why there can be no RabbitMQ here, or None."""
    lacking = [name for name in ("erl", "epmd") if shutil.which(name) is None]
    if lacking or _script() is None:
        return "rabbitmq-server not found: apt-get install rabbitmq-server"
    return None


class Rabbitmq:
    """One server of its own, with the plugin of consistent hashing. It may be killed and started again."""

    def __init__(self, directory: Path, lines: Sequence[str] = (), plugins: str = "rabbitmq_consistent_hash_exchange"):
        """`lines` are more of rabbitmq.conf."""
        self.port = free_port("127.0.0.1")
        self.tls_port = 0
        """Where it listens with TLS, if whoever gave `lines` says so."""
        self._directory = directory
        self._epmd_port = free_port("127.0.0.1")
        config = [
            f"listeners.tcp.local = 127.0.0.1:{self.port}",
            f"default_user = {USER}",
            f"default_pass = {PASSWORD}",
            *lines,
        ]
        (directory / "rabbitmq.conf").write_text("\n".join(config) + "\n", encoding="utf-8")
        (directory / "plugins").write_text(f"[{plugins}].\n", encoding="utf-8")
        own = {
            "HOME": str(directory),  # Erlang's cookie
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "RABBITMQ_NODENAME": "tailrace@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port("127.0.0.1")),
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none",
            "RUNNING_UNDER_SYSTEMD": "1",  # the shell becomes the server: what is ended is the server
        }
        self._environment = {**os.environ, **own}
        self._epmd: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Return when it takes connections."""
        if self._epmd is None:  # else the server starts one, which outlives it
            epmd = [str(shutil.which("epmd")), "-address", "127.0.0.1", "-port", str(self._epmd_port)]
            self._epmd = subprocess.Popen(epmd, env=self._environment)
            tie(self._epmd.pid)
        log = self._directory / "output"
        with log.open("ab") as output:
            self._server = subprocess.Popen(
                [str(_script())], stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=self._environment
            )
        tie(self._server.pid)
        has_ended = self._server.poll
        try:
            until(
                self._answers,
                "RabbitMQ's answer",
                _SECONDS,
                over=lambda: has_ended() is not None,
                state=lambda: log.read_text()[-3000:],
            )
        except AssertionError:
            self.kill()
            raise

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except (pika.exceptions.AMQPError, OSError):
            return False
        return True

    @property
    def version(self) -> str:
        """As it says itself."""
        connection = self.connect()
        said = connection._impl.server_properties["version"]
        connection.close()
        return str(said)

    def connect(self) -> Any:
        """A connection of pika's."""
        credentials = pika.PlainCredentials(USER, PASSWORD)
        return pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1", self.port, credentials=credentials, heartbeat=0, socket_timeout=60, stack_timeout=60
            )
        )

    def kill(self) -> None:
        """As when its host dies."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            self._server = None

    def stop(self) -> None:
        """End it, and what it needed, and its data."""
        self.kill()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
            self._epmd = None
        shutil.rmtree(self._directory, ignore_errors=True)


def started(lines: Sequence[str] = (), plugins: str = "rabbitmq_consistent_hash_exchange") -> Rabbitmq:
    """A server of its own, started, stopped with the process at the latest."""
    if trouble := missing():
        raise RuntimeError(trouble)
    server = Rabbitmq(Path(tempfile.mkdtemp(prefix="tailrace-rabbitmq-")), lines, plugins)
    atexit.register(server.stop)
    server.start()
    return server


@cache
def server() -> Rabbitmq:
    """The server that tests share; the first call starts it, in about eight seconds."""
    return started()


def _script() -> Path | None:
    """The server's own script: Debian's wrapper wants to be root, and becomes the user rabbitmq."""
    return next(iter(sorted(_LIBRARY.glob("rabbitmq_server-*/sbin/rabbitmq-server"))), None)
