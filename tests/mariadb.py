"""A real MariaDB for tests: Debian's mariadb-server as a child process on loopback, stopped with the process."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path

import pymysql
import sqlalchemy as sa

from tailrace.local import ports
from tests.support.waiting import until
from tests.tied import tie

_HOST = "127.0.0.1"
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
    if _user():
        shutil.chown(directory, "nobody")
    install = [_program("mariadb-install-db"), *_common(directory), "--auth-root-authentication-method=normal",
               "--skip-test-db"]  # fmt: skip
    subprocess.run(  # type: ignore[call-overload]  # program found
        install, check=True, stdout=subprocess.DEVNULL, env=_environment(directory), **_user()
    )
    port = ports.free_port(_HOST)
    return _serve(directory, port, options or {}), port


def _serve(directory: Path, port: int, options: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A server on the files of a directory; it answers."""
    places = [f"--socket={directory / 'socket'}", f"--pid-file={directory / 'pid'}", f"--port={port}"]
    extra = [f"--{name}={value}" for name, value in options.items()]
    with (directory / "log").open("ab") as log:
        server: subprocess.Popen[bytes] = subprocess.Popen(  # type: ignore[call-overload]  # program found
            [_program("mariadbd"), *_common(directory), *places, f"--bind-address={_HOST}", "--skip-name-resolve",
             *extra],
            stdout=log, stderr=log, env=_environment(directory), **_user(),
        )  # fmt: skip
    tie(server.pid)
    try:
        _await(server, port, directory / "log")
    except BaseException:
        server.kill()
        server.wait()
        raise
    return server


def _common(directory: Path) -> list[str]:
    return ["--no-defaults", f"--datadir={directory / 'data'}"]


def _user() -> dict[str, str]:
    return {"user": "nobody"} if os.geteuid() == 0 else {}  # mariadbd refuses to be root


def _environment(directory: Path) -> dict[str, str]:
    """Not /tmp: a server that starts there removes the temporary tables of all others, which then crash."""
    return {**os.environ, "TMPDIR": str(directory)}


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
    return _url(port)


def _url(port: int) -> str:
    return f"mysql+pymysql://root@{_HOST}:{port}/?charset=utf8mb4&connect_timeout={_SECONDS}"


def new_database() -> str:
    """The URL of a new, empty database. Its own character set is MariaDB's default: the sink says which it wants."""
    return _new_database(server_url())


def _new_database(server: str) -> str:
    name = f"tailrace_{next(_numbers)}"
    engine = sa.create_engine(server)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    engine.dispose()
    return sa.make_url(server).set(database=name).render_as_string(hide_password=False)


class Mortal:
    """A server that is killed with -9, and then started again on its files, as tests.mortal.Mortal says."""

    def __init__(self, directory: Path, options: Mapping[str, str]) -> None:
        """`directory` is empty; the server runs when this returns."""
        self._directory, self._options = directory, options
        self._server, self._port = start(directory, options)

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        return _new_database(_url(self._port))

    def kill(self) -> None:
        """kill -9 of the server, which is one process, and has ended when this returns."""
        self._server.kill()
        self._server.wait(_SECONDS)

    def start(self) -> None:
        """Start it again, at the same port; it recovers from its log."""
        self._server = _serve(self._directory, self._port, self._options)


@contextmanager
def mortal(options: Mapping[str, str] | None = None) -> Iterator[Mortal]:
    """A server of one's own."""
    directory = Path(tempfile.mkdtemp(prefix="tailrace-mortal-"))
    server = Mortal(directory, options or {})
    try:
        yield server
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/bin")


def until_other_than(words: Collection[str], connect: Callable[[], object]) -> object:
    """What `connect` gives or raises, once that is something else than an error with any of these words in it."""

    def answer() -> tuple[object] | None:
        try:
            return (connect(),)
        except Exception as error:
            if not any(word in str(error).lower() for word in words):
                raise
            return None

    return until(answer, f"an answer without {', '.join(words)}", _SECONDS)[0]


def _await(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    def answers() -> bool:
        try:
            pymysql.connect(host=_HOST, port=port, user="root").close()
        except pymysql.err.OperationalError:
            return False
        return True

    until(
        answers,
        "mariadbd's answer",
        _SECONDS,
        over=lambda: server.poll() is not None,
        state=lambda: log.read_text()[-2000:],
    )
