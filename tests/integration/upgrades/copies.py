"""A SQLite file that a stream of one version after the other fills."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from tests.unit.spark.sinks.contract import Database

Row = tuple[object, ...]


class Copy:
    """A SQLite file that a stream fills with `shop.t`, or other tables, beside the stream's own files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.url = f"sqlite:///{directory / 'copy.db'}"
        self._database = Database(self.url, sa.create_engine(self.url))

    def rows(self, table: str = "shop_t", columns: str = "k, a, b") -> list[Row]:
        return sorted(self._select(f"SELECT {columns} FROM {table}")) if table in self._database.names() else []

    def has_formats(self) -> bool:
        """Whether a version that notes them has opened it."""
        return "tailrace_formats" in self._database.names()

    def _select(self, query: str) -> list[Row]:
        return self._database.select(query)

    def close(self) -> None:
        self._database.engine.dispose()


@contextmanager
def copy_in(directory: Path) -> Iterator[Copy]:
    """A copy and its stream's files, in a directory of their own."""
    directory.mkdir()
    copy = Copy(directory)
    yield copy
    copy.close()
