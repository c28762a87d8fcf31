"""A real MariaDB for tests: Debian's mariadb-server as a child process on loopback, stopped with the process."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from functools import cache
from itertools import count
from pathlib import Path

import pymysql
import sqlalchemy as sa

_numbers = count()
_SECONDS = 60


def missing() -> str | None:
    """Why there can be no MariaDB here, or None."""
    lacking = [name for name in ("mariadbd", "mariadb-install-db") if _program(name) is None]
    return f"{' and '.join(lacking)} not found: apt-get install mariadb-server" if lacking else None


def start(directory: Path, options: Mapping[str, str] | None = None) -> tuple[subprocess.Popen[bytes], int]:
    """A server of its own with an empty database directory, its user root without a password; it answers."""
    if trouble := missing():
        raise RuntimeError(trouble)
    data = directory / "data"
    user = {}
    if os.geteuid() == 0:  # mariadbd refuses to be root
        shutil.chown(directory, "nobody")
        user = {"user": "nobody"}
    common = ["--no-defaults", f"--datadir={data}"]
    # Not /tmp: a server that starts there removes the temporary tables of all others, which then crash.
    own = {**os.environ, "TMPDIR": str(directory)}
    install = [_program("mariadb-install-db"), *common, "--auth-root-authentication-method=normal", "--skip-test-db"]
    subprocess.run(  # type: ignore[call-overload]  # program found
        install, check=True, stdout=subprocess.DEVNULL, env=own, **user
    )
    port = free_port()
    places = [f"--socket={directory / 'socket'}", f"--pid-file={directory / 'pid'}", f"--port={port}"]
    extra = [f"--{name}={value}" for name, value in (options or {}).items()]
    with (directory / "log").open("wb") as log:
        server = subprocess.Popen(  # type: ignore[call-overload]  # program found
            [_program("mariadbd"), *common, *places, "--bind-address=127.0.0.1", "--skip-name-resolve", *extra],
            stdout=log, stderr=log, env=own, **user,
        )  # fmt: skip
    try:
        _await(server, port, directory / "log")
    except BaseException:
        server.kill()
        server.wait()
        raise
    return server, port


@cache
def server_url() -> str:
    """SQLAlchemy's URL of a server that the first call starts, in about three seconds."""
    directory = Path(tempfile.mkdtemp(prefix="tailrace-mariadb-"))
    server, port = start(directory, {"innodb-flush-log-at-trx-commit": "0"})

    def stop() -> None:
        server.terminate()
        server.wait()
        shutil.rmtree(directory, ignore_errors=True)

    atexit.register(stop)
    return f"mysql+pymysql://root@127.0.0.1:{port}/?charset=utf8mb4"


def new_database() -> str:
    """The URL of a new, empty database. Its own character set is MariaDB's default: the sink says which it wants."""
    name = f"tailrace_{next(_numbers)}"
    engine = sa.create_engine(server_url())
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    engine.dispose()
    return sa.make_url(server_url()).set(database=name).render_as_string(hide_password=False)


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/bin")


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def until_other_than(words: Collection[str], connect: Callable[[], object]) -> object:
    """What `connect` gives or raises, once that is something else than an error with any of these words in it."""
    until = time.monotonic() + _SECONDS
    while True:
        try:
            return connect()
        except Exception as error:
            if not any(word in str(error).lower() for word in words) or time.monotonic() > until:
                raise
            time.sleep(0.1)


def _await(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + _SECONDS
    while True:
        try:
            pymysql.connect(host="127.0.0.1", port=port, user="root").close()
        except pymysql.err.OperationalError:
            if server.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"mariadbd does not answer: {log.read_text()[-2000:]}") from None
            time.sleep(0.1)
        else:
            return
