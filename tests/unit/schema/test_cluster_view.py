"""Tables with cdc whose writes never reach the commit log, by what a node says of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from tailrace.history.objects import NodeState
from tailrace.history.rows import Name
from tailrace.schema.cluster_view import Bypass, ClusterView, bypass_words, read_bypassing
from tests.support.schema import MemorySchema
from tests.unit.tables import table

ORDERS = table({"id": "int"}, keyspace="shop", name="orders")
NOTES = replace(ORDERS, name="notes", id=UUID(int=2), cdc=False)
# As 6.0-alpha2 answers, without the options that say nothing here.
KEYSPACE = "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy'}  AND durable_writes = true"
TABLE = (
    "CREATE TABLE shop.orders (\n    id int PRIMARY KEY\n) WITH cdc = true\n    AND comment = '#'\n"
    "    AND transactional_mode = '%s'\n    AND transactional_migration_from = '%s'\n    AND speculative_retry = '99p';"
)


def read(statements: dict[Name, str], *, durable: bool = True, epoch: int | None = 7) -> list[tuple[str, str]]:
    """Which tables of the keyspace bypass the log, and why."""
    options: dict[str, Mapping[str, Any]] = {"shop": {"durable_writes": durable, "replication": {}}}
    schema = MemorySchema([ORDERS, NOTES], options=options, epoch=epoch, described=statements)
    view = ClusterView(schema)
    view.read()
    return [(str(bypass.table), bypass.reason) for bypass in view.bypassing]


@pytest.mark.parametrize(
    ("mode", "previous", "reason"),
    [
        ("off", "none", None),
        ("off", "off", None),
        ("full", "none", "transactional_mode = 'full'"),
        ("full", "off", "transactional_mode = 'full'"),
        ("mixed_reads", "none", "transactional_mode = 'mixed_reads'"),
        ("off", "full", "its migration from transactional_mode = 'full' is not finished"),
    ],
)
def test_writes_by_accord_are_not_logged(mode: str, previous: str, reason: str | None) -> None:
    """Those of a table that is migrated away from it go by Accord to the end."""
    statements = {("shop", ""): KEYSPACE, ("shop", "orders"): TABLE % (mode, previous)}
    assert read(statements) == ([] if reason is None else [("shop.orders", reason)])


def test_a_comment_says_nothing_of_the_mode() -> None:
    comment = TABLE.replace("'#'", "'AND transactional_mode = ''full'''") % ("off", "none")
    assert read({("shop", "orders"): comment}) == []


def test_keyspaces_that_are_not_logged() -> None:
    """With mutation tracking, and on every release with durable_writes = false."""
    tracked = f"{KEYSPACE} AND replication_type = 'tracked';"
    assert read({("shop", ""): tracked}) == [("shop.orders", "keyspace shop has replication_type = 'tracked'")]
    assert read({("shop", ""): f"{KEYSPACE} AND replication_type = 'untracked';"}) == []
    expected = [("shop.orders", "keyspace shop has durable_writes = false")]
    assert read({}, durable=False) == expected
    assert read({}, durable=False, epoch=None) == expected


def test_older_releases_and_keyspaces_without_cdc_are_not_asked() -> None:
    asked: list[Collection[str]] = []

    class Node:
        """Notes what it is asked."""

        def statements(self, keyspaces: Collection[str]) -> dict[Name, str]:
            asked.append(keyspaces)
            return {}

    read_bypassing(Node(), [ORDERS, NOTES], NodeState())
    read_bypassing(Node(), [replace(NOTES, keyspace="other")], NodeState(metadata=1))
    assert asked == []
    read_bypassing(Node(), [ORDERS, NOTES, replace(NOTES, keyspace="other")], NodeState(metadata=1))
    assert asked == [{"shop"}]


def test_the_words_name_tables_reasons_and_cures() -> None:
    bypassing = [Bypass(replace(ORDERS, name=f"t{number}"), "because", "ALTER it") for number in range(5)]
    detail, advice = bypass_words(bypassing)
    assert "shop.t0 (because), shop.t1 (because), shop.t2 (because) and 2 more" in detail
    assert advice.count("ALTER it") == 1
