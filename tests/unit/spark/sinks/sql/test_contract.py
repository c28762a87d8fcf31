"""The SQL sink under the contract of merging sinks, in each database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests import pgbouncer
from tests.unit.spark.sinks.contract import Database
from tests.unit.spark.sinks.merging_contract import MergingContract
from tests.unit.spark.sinks.row_filter_contract import RowFilterContract
from tests.unit.spark.sinks.sql.stores import BehindPooler, InDatabase, WrittenInTasks


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
    def another(self, database: Database) -> Iterator[Callable[[], InDatabase]]:
        if trouble := pgbouncer.missing():
            pytest.skip(trouble)
        with pgbouncer.pooled(database.url) as url:
            yield partial(emptied, database, partial(BehindPooler, pooled_url=url))


@pytest.mark.slow
class TestSqlInTasks(MergingContract, RowFilterContract):
    sink = "sql, in tasks"

    @pytest.fixture
    def server(self, server_database: Database) -> str:
        return server_database.version

    @pytest.fixture
    def another(self, server_database: Database) -> Callable[[], InDatabase]:
        return partial(emptied, server_database, WrittenInTasks)
