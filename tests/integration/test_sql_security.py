"""The SQL sink over TLS with a password, into real servers that take nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pymysql
import pytest

from tailrace.local.ports import free_port
from tailrace_schemas.errors import ServiceError
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.sql.sink import SqlSink
from tests import mariadb
from tests.services.certificates import Authority
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import piece
from tests.unit.tables import table

PASSWORD = "hunter2 & {more}"  # noqa: S105 - of servers that live for a test
PEOPLE = table({"id": "int"}, regular={"name": "text"}, keyspace="shop", name="people")


@contextmanager
def folder(authority: Authority) -> Iterator[Path]:
    """A directory of the server's user with its certificate and key in it; and the authority's certificate."""
    directory = Path(tempfile.mkdtemp(prefix="tailrace-tls-"))
    issued = authority.issue("database")
    for name, text in (("ca.pem", authority.certificate), ("cert.pem", issued.certificate), ("key.pem", issued.key)):
        (directory / name).write_text(text)
    (directory / "key.pem").chmod(0o600)
    if os.geteuid() == 0:
        for path in (directory, *directory.iterdir()):
            shutil.chown(path, "nobody")
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def secured_postgres(directory: Path) -> Iterator[str]:
    """A PostgreSQL that takes scram passwords over TLS alone; the URL without how TLS is checked."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not installed:  # PyPI's PostgreSQL, which the other tests run, is built without TLS
        pytest.skip("no PostgreSQL with TLS: apt-get install postgresql")
    programs = installed[-1].parent
    user: dict[str, Any] = {"user": "nobody"} if os.geteuid() == 0 else {}
    data, port = directory / "data", free_port("127.0.0.1")
    (directory / "password").write_text(PASSWORD + "\n")
    (directory / "password").chmod(0o644)
    how = ["-U", "writer", "-A", "scram-sha-256", "--pwfile", str(directory / "password")]
    subprocess.run(
        [str(programs / "initdb"), "-D", str(data), *how], check=True, stdout=subprocess.DEVNULL, cwd=directory, **user
    )
    (data / "pg_hba.conf").write_text("hostssl all all 127.0.0.1/32 scram-sha-256\n")
    options = {"ssl": "on", "ssl_cert_file": directory / "cert.pem", "ssl_key_file": directory / "key.pem"}
    options |= {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": "", "fsync": "off"}
    flags = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    with (directory / "log").open("wb") as log:
        command = [str(programs / "postgres"), "-D", str(data), *flags]
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory, **user)
    place = f"127.0.0.1:{port}/postgres"
    try:
        with pytest.raises(psycopg.OperationalError, match=r"no encryption|pg_hba"):
            mariadb.until_other_than(
                ("refused", "starting up"), lambda: psycopg.connect(f"postgresql://writer:x@{place}?sslmode=disable")
            )
        yield f"postgresql://writer:{quote(PASSWORD, safe='')}@{place}?sslmode=verify-full&sslrootcert="
    finally:
        server.terminate()
        server.wait()


@contextmanager
def secured_mariadb(directory: Path) -> Iterator[str]:
    """A MariaDB that takes passwords over TLS alone."""
    if trouble := mariadb.missing():
        pytest.skip(trouble)
    options = {f"ssl-{name}": str(directory / f"{name}.pem") for name in ("ca", "cert", "key")}
    server, port = mariadb.start(directory, options)
    try:
        with pymysql.connect(host="127.0.0.1", port=port, user="root") as connection:
            cursor = connection.cursor()
            cursor.execute("CREATE DATABASE shop")
            cursor.execute("CREATE USER writer@'127.0.0.1' IDENTIFIED BY %s REQUIRE SSL", (PASSWORD,))
            cursor.execute("GRANT ALL ON shop.* TO writer@'127.0.0.1'")
        with pytest.raises(pymysql.err.OperationalError, match="denied"):
            pymysql.connect(host="127.0.0.1", port=port, user="writer", password=PASSWORD, ssl_disabled=True)
        yield f"mysql://writer:{quote(PASSWORD, safe='')}@127.0.0.1:{port}/shop?ssl_ca="
    finally:
        server.terminate()
        server.wait()


@pytest.mark.parametrize(
    "secured",
    [
        pytest.param(secured_postgres, id="postgresql", marks=pytest.mark.integration),
        pytest.param(secured_mariadb, id="mariadb", marks=pytest.mark.long),
    ],
)
def test_tls_and_a_password(secured: Callable[[Path], Any], tmp_path: Path) -> None:
    authority, stranger = Authority(), tmp_path / "stranger.pem"
    stranger.write_text(Authority("somebody else").certificate)
    change = Log(PEOPLE).insert((1,), (), 1, name="Ann")
    with folder(authority) as directory, secured(directory) as url:
        good = f"{url}{directory / 'ca.pem'}"
        sink = SqlSink(good)
        assert write_here(sink, [piece([change])]).rows == 1
        sink.close()
        wrong = good.replace(quote(PASSWORD, safe=""), "hunter3")
        for bad, why in ((f"{url}{stranger}", "certificate"), (wrong, "writer")):
            sink = SqlSink(bad)
            with pytest.raises(ServiceError, match=why) as raised:
                sink.reach()
            assert "hunter" not in f"{raised.value} {raised.value!r} {sink!r}"
            sink.close()
