"""The statement of a range, and which write times a release tells."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailrace_schemas.errors import SettingsError
from tailrace_spark.snapshot.selection import Release, columns_of, selection, statement
from tests.unit.tables import table

ORDERS = table(
    {"shop": "int", "Id": "text"},
    {"line": "int"},
    static={"owner": "text"},
    regular={"tags": "set<text>", "fixed": "frozen<set<text>>", "home": "addr", "total": "decimal", "order": "int"},
    keyspace="shop",
    name="Orders",
)
COUNTS = replace(table({"k": "int"}, regular={"n": "counter"}, name="counts"), flags=frozenset({"compound", "counter"}))


def selected(release: Release, *names: str) -> list[str]:
    columns = columns_of(ORDERS, names or None)
    return [item.cql for item in selection(columns, release, times=True)]


def test_from_5_0_on_every_column_but_the_key_has_its_times() -> None:
    assert selected((5, 0), "shop", "owner", "tags") == [
        "shop", "owner", "tags", "WRITETIME(owner)", "WRITETIME(tags)", "TTL(owner)", "TTL(tags)",
    ]  # fmt: skip
    assert "WRITETIME(home)" in selected((6, 0))


def test_before_5_0_collections_and_user_types_have_none_unless_they_are_frozen() -> None:
    timed = {name for name in selected((4, 1)) if name.startswith("WRITETIME")}
    assert timed == {"WRITETIME(owner)", "WRITETIME(fixed)", "WRITETIME(total)", 'WRITETIME("order")'}


@pytest.mark.parametrize("release", [(3, 0, 27), (3, 11, 13), (4, 0), (4, 0, 4)])
def test_older_releases_tell_no_times_of_frozen_collections(release: Release) -> None:
    """They refuse the statement (CASSANDRA-17628)."""
    assert "WRITETIME(fixed)" not in selected(release)
    assert "WRITETIME(fixed)" in selected((*release[:2], 30))


def test_counters_have_no_times() -> None:
    assert [item.cql for item in selection(columns_of(COUNTS, None), (5, 0), times=True)] == ["k", "n"]


def test_names_are_quoted_where_cql_needs_it() -> None:
    picked = selection(columns_of(ORDERS, ["Id", "order"]), (5, 0), times=False)
    assert statement(ORDERS, picked) == (
        'SELECT "Id", "order" FROM shop."Orders" WHERE token(shop, "Id") > ? AND token(shop, "Id") <= ?'
    )


def test_filtering_is_allowed_on_request_only() -> None:
    picked = selection(columns_of(ORDERS, ["total"]), (5, 0), times=False)
    assert statement(ORDERS, picked, " line = 3 ").endswith("<= ? AND line = 3")
    assert statement(ORDERS, picked, "line = 3", allow_filtering=True).endswith("AND line = 3 ALLOW FILTERING")
    assert statement(ORDERS, picked, "owner = 'a;?''b'").endswith("AND owner = 'a;?''b'")


@pytest.mark.parametrize("condition", ["", "  ", "line = ?", "line = 3; DROP TABLE x", "owner = 'a' ; x"])
def test_what_is_more_than_a_condition_is_refused(condition: str) -> None:
    with pytest.raises(SettingsError, match="filter is a CQL condition"):
        statement(ORDERS, selection(ORDERS.key, (5, 0), times=False), condition)


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(SettingsError, match=r"no column 'totals'; its columns are shop, Id, line, owner, "):
        columns_of(ORDERS, ["total", "totals"])
