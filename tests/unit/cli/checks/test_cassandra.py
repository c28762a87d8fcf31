"""`tailrace check` of the selection: what is published, and each kind of mistake in the patterns."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest

from tailrace.cli.checks.cassandra import check_logged, check_masked, check_tables
from tailrace.schema.cluster_view import Bypass
from tailrace_common.selection import Selection, coverage, listed
from tailrace_common.settings import load_settings
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tests.unit.tables import table

Rows = dict[str, tuple[bool, str]]


def of(name: str, *, cdc: bool = True) -> Table:
    keyspace, _, plain = name.partition(".")
    return replace(table({"id": "text"}, name=plain, keyspace=keyspace, table_id=uuid4()), cdc=cdc)


SHOP = [of("shop.orders"), of("shop.items"), of("shop.notes", cdc=False), of("system.local", cdc=False)]


def rows(tables: list[Table], **given: str) -> Rows:
    settings = load_settings(None, {f"TAILRACE_TABLES__{name.upper()}": value for name, value in given.items()})
    return {row.name: (row.ok, f"{row.detail} | {row.advice}") for row in check_tables(settings, tables)}


def test_all_tables_that_have_cdc() -> None:
    assert rows(SHOP) == {"tables": (True, "shop.items, shop.orders | ")}


@pytest.mark.parametrize("tables", [[], [of("shop.orders", cdc=False)]])
def test_a_cluster_without_cdc_fails_nothing(tables: list[Table]) -> None:
    assert rows(tables) == {"tables": (True, "no table has cdc = true | ALTER TABLE ... WITH cdc = true")}


def test_a_pattern_that_matches_nothing_fails_and_its_advice_is_no_alter_table() -> None:
    found = rows(SHOP, include="shpo.*")
    assert {name for name, (ok, _) in found.items() if not ok} == {"tables", "tables without a pattern", "patterns"}
    assert "none of the tables with cdc = true is selected: shop.items, shop.orders" in found["tables"][1]
    assert "ALTER" not in found["tables"][1]
    assert 'tables.include: "shpo.*" matches no table (did you mean "shop.*"?)' in found["patterns"][1]


def test_one_right_pattern_hides_no_wrong_one() -> None:
    found = rows(SHOP, include="shop.orders,shop.itmes")
    assert found["tables"] == (True, "shop.orders | ")
    assert "shop.items has cdc = true, but no pattern" in found["tables without a pattern"][1]
    assert 'did you mean "shop.items"?' in found["patterns"][1]
    assert not found["patterns"][0]


def test_a_table_that_is_left_out_on_purpose_fails_nothing() -> None:
    assert rows(SHOP, include="shop.*", exclude="shop.items") == {"tables": (True, "shop.orders | ")}


def test_a_pattern_of_tables_without_cdc_is_told() -> None:
    found = rows(SHOP, include="shop.orders,shop.items,shop.notes")
    assert found["tables without cdc"][0]
    assert "ALTER TABLE" in found["tables without cdc"][1]
    assert len(found) == 2


def test_an_exclude_pattern_that_matches_nothing_is_told() -> None:
    found = rows(SHOP, exclude="shop.secrts")
    assert found["exclude patterns"] == (
        True,
        "tables.exclude: shop.secrts matches no table | check the spelling: what is not excluded is published",
    )


def test_excluding_everything_selects_nothing() -> None:
    assert not rows(SHOP, exclude="*.*")["tables"][0]


def test_what_is_given_up_on_demand_fails_nothing() -> None:
    found = rows(SHOP, include="later.*", release_unselected="true")
    assert {name for name, (ok, _) in found.items() if not ok} == {"patterns"}
    assert "given up" in found["tables"][1]


def test_cassandras_own_tables_match_no_pattern() -> None:
    assert coverage(Selection(("*.local",)), SHOP).unmatched == ("*.local",)


def test_of_many_names_the_first_are_listed() -> None:
    assert listed([f"k.t{number}" for number in range(12)]).endswith("k.t9 and 2 more")


def test_tables_whose_writes_reach_no_log() -> None:
    """Of those that are selected; where there are none, there is no row."""
    settings = load_settings(None, {"TAILRACE_TABLES__EXCLUDE": '["shop.items"]'})
    items, orders = (Bypass(table, "because", "ALTER it") for table in (of("shop.items"), of("shop.orders")))
    [row] = check_logged(settings, [items, orders])
    assert (row.name, row.ok) == ("tables logged", False)
    assert "shop.orders (because)" in row.detail
    assert "shop.items" not in row.detail
    assert "ALTER it" in row.advice
    assert list(check_logged(settings, [items])) == []


MASKS = [("shop", "orders", "buyer"), ("shop", "orders", "total"), ("shop", "notes", "text"), ("bank", "cards", "pin")]
READER = {"TAILRACE_CLUSTER__USERNAME": "reader", "TAILRACE_CLUSTER__PASSWORD": "p"}


def masked(release: str = "5.0.9", **environ: str) -> list[tuple[bool, str, str]]:
    """What the check says of tables without cdc too, of which this role has UNMASK on none."""
    settings = load_settings(None, {**READER, **environ})

    def answers(statement: str) -> list[tuple[object, ...]]:
        if "column_masks" in statement:
            return list(MASKS)
        if " OF " in statement:
            return []
        raise ServiceError("You are not authorized to view everyone's permissions")

    return [(row.ok, row.detail, row.advice) for row in check_masked(settings, SHOP, answers, release)]


@pytest.mark.promise("snapshot.masked")
def test_masked_columns_of_selected_tables_are_named_with_what_to_grant() -> None:
    [(ok, detail, advice)] = masked(TAILRACE_STREAM__SNAPSHOT="initial")
    assert not ok
    assert detail.startswith("Cassandra masks shop.orders.buyer, shop.orders.total for this role: ")
    assert "GRANT UNMASK ON TABLE shop.orders TO reader" in detail
    assert "notes" not in detail
    assert "the log has what is stored" in advice
    [(ok, _, _)] = masked(TAILRACE_STREAM__SNAPSHOT="never")
    assert ok


def test_masked_columns_fail_nothing_where_they_are_accepted_or_there_are_none() -> None:
    assert masked(TAILRACE_SNAPSHOT__ALLOW_MASKED_VALUES="true") == []
    assert masked(release="4.1.10") == []
    assert masked(TAILRACE_TABLES__INCLUDE="shop.items") == []
