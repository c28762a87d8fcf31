"""A real PgBouncer for tests: Debian's pgbouncer as a child process on loopback, before the tests' PostgreSQL."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa

from tailrace.local.ports import free_port
from tests import mariadb, postgres

_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/usr/bin"


def missing() -> str | None:
    """Why there can be no PgBouncer here, or None."""
    return None if shutil.which("pgbouncer", path=_PATH) else "pgbouncer not found: apt-get install pgbouncer"


@contextmanager
def pooled(url: str, connections: int = 1) -> Iterator[str]:
    """The URL of a database of tests.postgres behind a pooler, which lends these connections for transactions."""
    directory, port = Path(tempfile.mkdtemp(prefix="tailrace-pgbouncer-")), free_port("127.0.0.1")
    (directory / "pgbouncer.ini").write_text(
        f"[databases]\n* = host=127.0.0.1 port={postgres.port()} user=postgres\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        f"pool_mode = transaction\ndefault_pool_size = {connections}\n"
    )
    user: dict[str, Any] = {}
    if os.geteuid() == 0:  # pgbouncer refuses to be root
        user = {"user": "nobody"}
        for path in (directory, directory / "pgbouncer.ini"):
            shutil.chown(path, "nobody")
    program = shutil.which("pgbouncer", path=_PATH) or "pgbouncer"
    with (directory / "log").open("wb") as log:
        pooler = subprocess.Popen([program, str(directory / "pgbouncer.ini")], stdout=log, stderr=log, **user)
    location = f"127.0.0.1:{port}/{sa.make_url(url).database}"
    try:
        mariadb.until_other_than(("refused",), lambda: psycopg.connect(f"postgresql://postgres@{location}").close())
        yield f"postgresql+psycopg://postgres@{location}"
    finally:
        pooler.terminate()
        pooler.wait(60)
        shutil.rmtree(directory, ignore_errors=True)
