"""A materialized view with cdc, followed as the node answers of it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tailrace.local import CassandraSettings, LocalCassandra, LocalKafka
from tests.field.following import following

pytestmark = [pytest.mark.integration, pytest.mark.long]

BEFORE = (
    "CREATE TABLE #.t (id int PRIMARY KEY, owner text, v int)",
    "CREATE MATERIALIZED VIEW #.by_owner AS SELECT owner, id, v FROM #.t WHERE owner IS NOT NULL AND id IS NOT NULL "
    "PRIMARY KEY (owner, id) WITH cdc = true",
    *(f"INSERT INTO #.t (id, owner, v) VALUES ({id}, 'ann', {id})" for id in (1, 2, 3)),
)


def test_a_view_shows_what_the_node_shows(kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path) -> None:
    """Each change of the owner moves the row; the rows that it leaves have an expired marker, by which they go."""
    settings = CassandraSettings(yaml={"materialized_views_enabled": True})
    with (
        LocalCassandra(tmp_path / "node", settings) as node,
        following(node, kafka, prefix, keyspace_name, tmp_path) as followed,
    ):
        followed.run(*BEFORE)
        followed.until("by_owner", [("ann", 1, 1), ("ann", 2, 2), ("ann", 3, 3)], "owner, id, v")
        followed.run(*(f"UPDATE #.t SET owner = 'bob' WHERE id = {id}" for id in (1, 2, 3)))
        followed.until("by_owner", [("bob", 1, 1), ("bob", 2, 2), ("bob", 3, 3)], "owner, id, v")
        changes = followed.agent.command("tail", f"{keyspace_name}.by_owner", "--from-beginning", "--max", "9")
        assert Counter(json.loads(line)["op"] for line in changes.splitlines()) == {"insert": 6, "delete": 3}


def test_rows_that_a_view_had_before_are_copied_and_leave_it(
    kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> None:
    """A snapshot has no markers: the log's, which is later, decides."""
    settings = CassandraSettings(yaml={"materialized_views_enabled": True})
    with LocalCassandra(tmp_path / "node", settings) as node:
        stream = {"snapshot": '"initial"', "starting_offsets": '"latest"'}
        with following(node, kafka, prefix, keyspace_name, tmp_path, before=BEFORE, stream=stream) as followed:
            followed.until("by_owner", [("ann", 1, 1), ("ann", 2, 2), ("ann", 3, 3)], "owner, id, v")
            followed.run("UPDATE #.t SET owner = 'bob' WHERE id = 1", "UPDATE #.t SET v = null WHERE id = 2")
            followed.until("by_owner", [("ann", 2, None), ("ann", 3, 3), ("bob", 1, 1)], "owner, id, v")
