"""The SQL sink under the contract of merging sinks, in each database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tailrace_schemas.table import Table
from tailrace_spark.sinks.protocol import SweepingSink
from tailrace_spark.sinks.sql.sink import SqlSink
from tests import pgbouncer
from tests.support.letters import MemoryLetters
from tests.unit.spark.sinks.contract import Database
from tests.unit.spark.sinks.in_tasks import InTasks
from tests.unit.spark.sinks.merging_contract import MergingContract, Row, by_repr
from tests.unit.spark.sinks.row_filter_contract import RowFilterContract


class InDatabase:
    """The tables of a SQL sink."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.letters = MemoryLetters()

    def open(self, clock: Callable[[], float] | None = None, ring_delay: float = 0.0) -> SweepingSink:
        return self.sink(self._database.url, clock, ring_delay)

    def sink(self, url: str, clock: Callable[[], float] | None, ring_delay: float) -> SqlSink:
        return SqlSink(url, ring_delay=ring_delay, clock=clock or (lambda: 0), letters=self.letters)

    def _view(self, of: Table) -> str:
        rows = self._database.select("SELECT table_id, name FROM tailrace_tables")
        return str(dict(rows)[str(of.id)])

    def rows(self, of: Table, *columns: str) -> list[Row]:
        named = ", ".join(f'"{column}"' for column in columns)
        return by_repr(self._database.select(f'SELECT {named} FROM "{self._view(of)}"'))

    def columns(self, of: Table) -> list[str]:
        return self._database.columns(self._view(of))

    def everything(self) -> object:
        return self._database.everything()


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


def emptied(database: Database, kind: Callable[[Database], InDatabase]) -> InDatabase:
    """The same database without any rows of `shop.orders` and `shop.sales`."""
    quote = database.engine.dialect.identifier_preparer.quote
    with database.engine.begin() as connection:
        for name in database.names():
            if name.startswith(("shop_orders__", "shop_sales__")):
                connection.exec_driver_sql(f"DELETE FROM {quote(name)}")
    return kind(database)


class TestSql(MergingContract, RowFilterContract):
    sink = "sql"

    @pytest.fixture
    def server(self, database: Database) -> str:
        return database.version

    @pytest.fixture
    def followed(self, database: Database) -> InDatabase:
        return InDatabase(database)

    @pytest.fixture
    def another(self, database: Database) -> Callable[[], InDatabase]:
        return partial(emptied, database, InDatabase)


@pytest.mark.long
@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
class TestSqlBehindAPooler(MergingContract):
    sink = "sql, behind a pooler"

    @pytest.fixture
    def server(self, database: Database) -> str:
        return f"{database.version}, PgBouncer"

    @pytest.fixture
    def pooled_url(self, database: Database) -> Iterator[str]:
        if trouble := pgbouncer.missing():
            pytest.skip(trouble)
        with pgbouncer.pooled(database.url) as url:
            yield url

    @pytest.fixture
    def followed(self, database: Database, pooled_url: str) -> InDatabase:
        return BehindPooler(database, pooled_url)

    @pytest.fixture
    def another(self, database: Database, pooled_url: str) -> Callable[[], InDatabase]:
        return partial(emptied, database, partial(BehindPooler, pooled_url=pooled_url))


@pytest.mark.slow
class TestSqlInTasks(MergingContract, RowFilterContract):
    sink = "sql, in tasks"

    @pytest.fixture
    def server(self, server_database: Database) -> str:
        return server_database.version

    @pytest.fixture
    def followed(self, server_database: Database) -> InDatabase:
        return WrittenInTasks(server_database)

    @pytest.fixture
    def another(self, server_database: Database) -> Callable[[], InDatabase]:
        return partial(emptied, server_database, WrittenInTasks)
