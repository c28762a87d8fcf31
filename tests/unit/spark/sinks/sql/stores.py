"""The tables of a SQL sink for tests, whatever writes them, and what their readers see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tailrace_schemas.table import Table
from tailrace_spark.sinks.protocol import SweepingSink
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.support.letters import MemoryLetters
from tests.unit.spark.sinks.contract import Database
from tests.unit.spark.sinks.in_tasks import InTasks
from tests.unit.spark.sinks.merging_contract import Row, by_repr


class InDatabase:
    """The tables of a SQL sink."""

    def __init__(self, database: Database, **options: Any) -> None:
        """With more options of SqlSink."""
        self._database = database
        self._options = options
        self.letters = MemoryLetters()

    def open(self, clock: Callable[[], float] | None = None, ring_delay: float = 0.0) -> SweepingSink:
        return self.sink(self._database.url, clock, ring_delay)

    def sink(self, url: str, clock: Callable[[], float] | None, ring_delay: float) -> SqlSink:
        time = clock or (lambda: 0)
        return SqlSink(url, ring_delay=ring_delay, clock=time, letters=self.letters, **self._options)

    def _view(self, of: Table) -> str:
        rows = self._database.select("SELECT table_id, name FROM tailrace_tables")
        return str(dict(rows)[str(of.id)])

    def rows(self, of: Table, *columns: str) -> list[Row]:
        named = ", ".join(f'"{column}"' for column in columns)
        return by_repr(self._database.select(f'SELECT {named} FROM "{self._view(of)}"'))

    def columns(self, of: Table) -> list[str]:
        return self._database.columns(self._view(of))

    def everything(self) -> object:
        """All but the tokens of who has written."""
        return {name: rows for name, rows in self._database.everything().items() if name != "tailrace_fences"}

    def kept(self) -> int:
        """How many states there are, of rows that are shown and of others."""
        tables = self._database.everything()
        return sum(len(rows) for name, rows in tables.items() if name.endswith("__state"))


class BehindPooler(InDatabase):
    """The same, written through a pooler that has fewer connections than there are clients."""

    def __init__(self, database: Database, pooled_url: str) -> None:
        super().__init__(database)
        self._pooled_url = pooled_url

    def open(self, clock: Callable[[], float] | None = None, ring_delay: float = 0.0) -> SweepingSink:
        return self.sink(self._pooled_url, clock, ring_delay)


class WrittenInTasks(InDatabase):
    """The same, written by tasks."""

    def open(self, clock: Callable[[], float] | None = None, ring_delay: float = 0.0) -> SweepingSink:
        return InTasks(super().open(clock, ring_delay))

    def everything(self) -> object:
        """All but the numbers of batches and plans."""
        tables = self._database.everything()
        return {name: rows for name, rows in tables.items() if name not in ("tailrace_fences", "tailrace_partitions")}
