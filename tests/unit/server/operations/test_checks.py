"""What is looked at before a subscription is kept: tables, filter, masks and sink; errors name the setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tailrace_common.cli.checks import Check
from tailrace_common.kafka import client
from tailrace_common.settings import Settings
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.model.subscription import RefusedRequestError, Request, Shape
from tailrace_server.operations.asking import Asked, own_settings
from tailrace_server.operations.checks import (
    columns_checked,
    examined,
    fit_checked,
    matching,
    tables_known,
    within,
)
from tailrace_server.operations.operations import Alteration, DirectOperations
from tailrace_spark.sinks.protocol import Capabilities
from tests.unit.server import requests
from tests.unit.tables import table

ORDERS = table(
    {"id": "int", "Country": "text"}, {"day": "date"}, regular={"email": "text", "tags": "set<text>"},
    keyspace="shop", name="orders",
)  # fmt: skip
ITEMS = table({"id": "int"}, regular={"price": "decimal"}, keyspace="shop", name="items")


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Kafka is at the addresses of these tests, and a refused connection is seen at once."""
    monkeypatch.setattr(client, "_PATIENCE_SECONDS", 0.2)


def shaped(where: str | None = None, columns: dict[str, str] | None = None, name: str = "shop.*") -> Request:
    return requests.request(table=name, shape=Shape(where=where, columns=columns or {}))


def test_tables_of_the_source() -> None:
    assert tables_known(requests.request(table="shop.orders"), [ORDERS]).ok
    missing = tables_known(requests.request(table="shop.order"), [ORDERS])
    assert (missing.ok, missing.advice) == (False, "did you mean shop.orders?")
    assert tables_known(requests.request(), []).advice == "published so far: nothing"


def test_treated_columns_exist() -> None:
    request = shaped(columns={"email": "mask", "no": "drop"})
    [check] = columns_checked(request, matching(request, [ORDERS, ITEMS]))
    assert (check.name, check.ok, check.advice[:8]) == ("columns.no", False, "columns:")
    assert list(columns_checked(request, [])) == []  # of tables that nobody knows yet nothing is known


def own(request: Request, base: Settings | None = None) -> Settings:
    return own_settings(base or requests.settings(), request.table, request.name, request.sink, request.shape)


def checks(request: Request, *tables: Any, rows: bool = False) -> list[Check]:
    filtering: Any = object() if rows else None  # that there is something counts alone
    able = Capabilities(filtering=filtering)
    return list(fit_checked(own(request), request.name, able, matching(request, tables)))


@pytest.mark.promise("subscription.checked")
def test_a_pattern_goes_without_the_tables_that_do_not_fit() -> None:
    parts = checks(shaped("country = 'DE'"), ORDERS, ITEMS)
    assert [(part.name, part.ok) for part in parts] == [("where, in part", True)]
    [part] = parts
    assert part.detail.startswith("shop.items will be left out: shop.items: where ")
    assert "shop.items has no column country" in part.detail
    [none] = checks(shaped("country = 'DE'"), ITEMS)
    assert (none.name, none.ok) == ("where", False)
    [masks] = checks(shaped(columns={"id": "drop"}), ORDERS, ITEMS)
    assert (masks.name, masks.ok, "it identifies rows" in masks.detail) == ("columns", False, True)
    [masks] = checks(shaped(columns={"day": "drop"}), ORDERS, ITEMS)
    assert (masks.name, masks.ok) == ("columns, in part", True)
    assert checks(shaped("country = 'DE'", name="shop.orders"), ORDERS, ITEMS) == []
    assert checks(shaped("country = 'DE'")) == []


@pytest.mark.slow
@pytest.mark.promise("subscription.checked")
def test_a_sink_is_tried_and_a_fault_points_at_its_setting(subscriptions: Subscriptions, tmp_path: Path) -> None:
    settings = with_kafka({**requests.TARGETS, "copy": {"type": "sql", "url": f"sqlite:///{tmp_path / 'copy.db'}"}})
    operations = DirectOperations(subscriptions, settings, "tester", examined)
    asked = Asked(table="shop.orders", name="warehouse", target="dwh", where="country =")
    with pytest.raises(RefusedRequestError) as refused:
        operations.subscribe(asked)
    words = str(refused.value)
    assert "subscription warehouse: where: where \"shop.orders\": 'country =' is no expression" in words
    assert "subscription warehouse: sink warehouse: " in words
    assert "see sink.warehouse.url" in words
    assert "--unchecked" in words
    assert requests.SECRET not in words
    assert operations.all() == []
    with pytest.raises(RefusedRequestError):
        operations.declare(asked, dry_run=True)
    answer, is_new = operations.subscribe(replace(asked, target="copy", where=None))
    assert is_new
    assert [note.partition(":")[0] for note in answer["notes"]] == ["source"]  # Kafka does not answer
    with pytest.raises(RefusedRequestError, match=r"where \"shop\.orders\": 'day >' is no"):
        operations.alter("warehouse", Alteration(where="day >"))
    assert operations.alter("warehouse", Alteration(where="day >"), check=False)["state"] == "active"
    other, _ = operations.subscribe(replace(asked, name="other"), check=False)
    assert (other["state"], other["notes"]) == ("active", [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "setting"),
    [
        ({"where": "id > 1"}, "where"),
        ({"columns": {"email": "drop"}}, "columns"),
        ({"stream": {"one_copy_seconds": 60}}, "one_copy_seconds"),
    ],
)
def test_what_takes_mutations_apart_is_refused(
    subscriptions: Subscriptions, tmp_path: Path, shape: dict[str, Any], setting: str
) -> None:
    files = {"type": "files", "path": str(tmp_path), "format": "jsonl", "transactions": True}
    operations = DirectOperations(subscriptions, with_kafka({"files": files}), "tester", examined)
    with pytest.raises(RefusedRequestError, match=rf"stream\.{setting} is not for a sink with transactions"):
        operations.subscribe(Asked(table="shop.orders", name="lake", target="files", **shape))


def with_kafka(targets: Mapping[str, object]) -> Settings:
    """Settings whose Kafka does not answer."""
    return requests.settings(targets, kafka={"bootstrap.servers": "127.0.0.1:1"})


def test_a_sink_that_never_answers_is_not_waited_for() -> None:
    end = Event()
    check = within(lambda: Check("sink", end.wait(), ""), 0.05)
    end.set()
    assert not check.ok


@pytest.mark.promise("subscription.checked")
def test_a_route_names_columns_of_the_partition_key() -> None:
    """Of a pattern tables that lack one are left out; masks are in force, as changes are routed behind them."""

    def routed(url: str, *tables: Any, **shape: Any) -> list[tuple[str, bool, str]]:
        request = requests.request(table="shop.*", shape=Shape(**shape), sink={"type": "http", "target": "hook"})
        settings = own(request, requests.settings({"hook": {"type": "http", "url": url}}))
        routes = fit_checked(settings, request.name, Capabilities(), tables)
        return [(check.name, check.ok, check.detail) for check in routes]

    assert routed("https://h/{table}/{key.id}", ORDERS, ITEMS) == []
    [(name, ok, words)] = routed("https://h/{key.day}", ORDERS)
    assert (name, ok) == ("sink.warehouse.url", False)
    assert words.startswith("shop.orders: url names {key.day}, which is not in its partition key. It may name {key.id}")
    [(name, ok, words)] = routed("https://h/{key.Country}", ORDERS, ITEMS)
    assert (name, ok) == ("sink.warehouse.url, in part", True)
    assert words.startswith("shop.items will be left out")
    renamed = {"Country": "rename land"}
    assert routed("https://h/{key.land}", ORDERS, columns=renamed) == []
    assert [ok for _, ok, _ in routed("https://h/{key.Country}", ORDERS, columns=renamed)] == [False]


@pytest.mark.promise("subscription.checked")
def test_a_filter_of_rows_is_checked_against_table_and_sink() -> None:
    def asked(where: str, *tables: Any, rows: bool = True) -> list[tuple[str, bool, str]]:
        return [(check.name, check.ok, check.detail) for check in checks(shaped(where), *tables, rows=rows)]

    assert asked("row.price > 5 AND id = 1", ITEMS) == []
    [(name, ok, words)] = asked("row.price > 5", ITEMS, rows=False)
    assert (name, ok) == ("where", False)
    assert "this sink knows only what a change writes. Sinks of the types sql and opensearch know them" in words
    [(name, ok, words)] = asked("row.price > 5", ITEMS, ORDERS)
    assert (name, ok) == ("where, in part", True)
    assert "no column row.price; it may ask for row.email" in words
    for where, says in (
        ("row.price IS NULL", "whether a value is missing cannot be asked"),
        ("row.price > 'a'", "row.price is decimal: compare it with a number"),
        ("row.price > 5 OR id = 1", "id is no row.NAME: a part asks either for these or for other names"),
        ("row.price > 5 AND nothing = 1", "shop.items has no column nothing"),
        ("row.price >", "is no expression of Spark SQL"),
    ):
        [(name, ok, words)] = asked(where, ITEMS)
        assert (name, ok, says in words) == ("where", False, True), words


@pytest.mark.slow
@pytest.mark.promise("subscription.checked")
@pytest.mark.parametrize(
    ("sink", "knows_rows"),
    [
        ({"type": "sql", "url": "sqlite:////none/copy.db"}, True),
        ({"type": "delta", "path": "/none", "mode": "current"}, True),
        ({"type": "iceberg", "path": "/none", "mode": "current"}, True),
        ({"type": "opensearch", "url": "http://127.0.0.1:1", "retry_seconds": 1}, True),
        ({"type": "delta", "path": "/none", "mode": "history"}, False),
        ({"type": "iceberg", "path": "/none", "mode": "history"}, False),
        ({"type": "files", "path": "/none", "format": "jsonl"}, False),
        ({"type": "console"}, False),
        ({"type": "console", "images": "sqlite:////none/images.db"}, True),
    ],
    ids=lambda value: "-".join(value.get(name, "") for name in ("type", "mode")) if isinstance(value, dict) else "",
)
def test_whether_a_sink_knows_rows_is_checked_before_anything_of_it_is_made(
    sink: dict[str, object], knows_rows: bool
) -> None:
    target = {"type": sink["type"], "target": "any"}
    request = requests.request(table="shop.*", shape=Shape(where="row.price > 5"), sink=target)
    refusals = [check.detail for check in examined(with_kafka({"any": sink}), request) if check.name == "where"]
    assert bool(refusals) is not knows_rows
    assert all("where asks for row.NAME" in words for words in refusals)
