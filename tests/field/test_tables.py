"""Which of several tables of one name is the later one: their ids say nothing, those of Cassandra 6 no time at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from tailrace.local import CassandraSettings, LocalCassandra, LocalKafka
from tests.field.following import following

pytestmark = [pytest.mark.integration, pytest.mark.long]

OLDER = UUID("1b255f4d-ef25-11ef-8e5c-9d0d1c0b8f00")
"""A time UUID of long before the test."""
TABLE = "CREATE TABLE #.t (k int PRIMARY KEY, v text)"


@pytest.fixture(scope="module", params=["5.0", "6.0"])
def cassandra(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCassandra]:
    """A node of each release."""
    with LocalCassandra(tmp_path_factory.mktemp("cassandra"), CassandraSettings(release=request.param)) as node:
        yield node


def test_a_table_that_is_created_again_with_its_id_has_no_row_from_before(
    cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> None:
    with following(cassandra, kafka, prefix, keyspace_name, tmp_path) as followed:
        followed.run(f"{TABLE} WITH cdc = true", "INSERT INTO #.t (k) VALUES (1)", "INSERT INTO #.t (k) VALUES (2)")
        followed.until("t", [(1,), (2,)], "k")
        query = "SELECT id FROM system_schema.tables WHERE keyspace_name = %s AND table_name = 't'"
        [row] = followed.session.execute(query, (keyspace_name,))
        followed.run("DROP TABLE #.t", f"{TABLE} WITH ID = {row.id} AND cdc = true", "INSERT INTO #.t (k) VALUES (3)")
        followed.until("t", [(3,)], "k")


@pytest.mark.parametrize("table_id", [OLDER, uuid4()], ids=["older time", "no time"])
def test_the_table_created_last_has_the_name_whatever_its_id(
    cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path, table_id: UUID
) -> None:
    with following(cassandra, kafka, prefix, keyspace_name, tmp_path) as followed:
        followed.run(f"{TABLE} WITH cdc = true", "INSERT INTO #.t (k) VALUES (1)")
        followed.until("t", [(1,)], "k")
        followed.run("DROP TABLE #.t", f"{TABLE} WITH ID = {table_id} AND cdc = true", "INSERT INTO #.t (k) VALUES (2)")
        followed.until("t", [(2,)], "k")
        [dropped] = [name for name in followed.names() if "__dropped_" in name and name[-10:-8] == "d_"]
        assert followed.database.select(f"SELECT k FROM {dropped}") == [(1,)]


def test_a_dropped_table_that_comes_back_with_its_id_takes_its_name_back(
    cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> None:
    first = uuid4()
    with following(cassandra, kafka, prefix, keyspace_name, tmp_path) as followed:
        followed.run(f"{TABLE} WITH ID = {first} AND cdc = true", "INSERT INTO #.t (k) VALUES (1)")
        followed.until("t", [(1,)], "k")
        followed.run("DROP TABLE #.t", f"{TABLE} WITH cdc = true", "INSERT INTO #.t (k) VALUES (2)")
        followed.until("t", [(2,)], "k")
        followed.run("DROP TABLE #.t", f"{TABLE} WITH ID = {first} AND cdc = true", "INSERT INTO #.t (k) VALUES (3)")
        followed.until("t", [(3,)], "k")


def test_an_agent_that_was_away_over_drop_and_create_gives_the_name_to_the_later_table(
    cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> None:
    """With the ids that the release makes by itself."""
    with following(cassandra, kafka, prefix, keyspace_name, tmp_path) as followed:
        followed.run(f"{TABLE} WITH cdc = true", "INSERT INTO #.t (k) VALUES (1)")
        followed.until("t", [(1,)], "k")
        assert followed.agent.stop() == 0
        followed.run("INSERT INTO #.t (k) VALUES (2)", "DROP TABLE #.t")
        followed.run(f"{TABLE} WITH cdc = true", "INSERT INTO #.t (k) VALUES (3)")
        followed.agent.start()
        followed.until("t", [(3,)], "k")
