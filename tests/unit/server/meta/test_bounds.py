"""A meta database that takes connections and answers nothing is one that is down: nobody waits for it for ever."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from tailrace_schemas.errors import ServiceError
from tailrace_server.meta import database
from tailrace_server.meta.database import MetaDatabase
from tests import mariadb
from tests.services.proxy import Proxy
from tests.unit.server.meta.hanging import behind_a_proxy

pytestmark = pytest.mark.promise("subscription.one-owner")


def stalled(database: MetaDatabase, proxy: Proxy) -> None:
    with database.transaction() as connection:
        proxy.stall()
        connection.execute(sa.select(1))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgresql", pytest.param("mysql", marks=pytest.mark.long)])
def test_one_that_hangs_is_down_and_asked_again_once_it_answers(kind: str) -> None:
    """Whether it hangs in the middle of a transaction, at the next one, or at a new connection."""
    if kind == "mysql" and (trouble := mariadb.missing()):
        pytest.skip(trouble)
    with behind_a_proxy(kind) as (url, proxy), MetaDatabase(url) as database:
        database.ping()
        with pytest.raises(ServiceError):
            stalled(database, proxy)
        with pytest.raises(ServiceError):
            database.ping()
        proxy.flow()
        database.ping()
        proxy.stall()
        with pytest.raises(ServiceError):
            database.ping()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "slow"),
    [("postgresql", "SELECT pg_sleep(600)"), pytest.param("mysql", "SELECT sleep(600)", marks=pytest.mark.long)],
)
def test_a_statement_that_takes_too_long_ends(kind: str, slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "SECONDS", 1)
    if kind == "mysql" and (trouble := mariadb.missing()):
        pytest.skip(trouble)
    with behind_a_proxy(kind) as (url, _), MetaDatabase(url) as meta:
        with pytest.raises(ServiceError), meta.transaction() as connection:
            connection.exec_driver_sql(slow)
        meta.ping()
