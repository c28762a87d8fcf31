"""What every engine of a database does before anybody uses it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, Thread

import sqlalchemy as sa

from tailrace_spark.sinks.state_store.engine import open_engine


def test_many_that_open_a_new_sqlite_file_at_once_all_get_it(tmp_path: Path) -> None:
    """SQLite tells all but one of those that ask for its WAL that the file is locked, at once and not after its wait.

    Forty files: one in sixteen had a refusal before anybody asked again.
    """
    modes: list[str] = []

    def use(file: Path, together: Barrier) -> None:
        with disposing(open_engine(f"sqlite:///{file}")) as engine:
            together.wait()
            with engine.begin() as connection:
                modes.append(connection.exec_driver_sql("PRAGMA journal_mode").scalar_one())

    for number in range(40):
        barrier = Barrier(8)
        threads = [Thread(target=use, args=(tmp_path / f"{number}.db", barrier)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert modes == ["wal"] * 40 * 8


@contextmanager
def disposing(engine: sa.Engine) -> Iterator[sa.Engine]:
    yield engine
    engine.dispose()
