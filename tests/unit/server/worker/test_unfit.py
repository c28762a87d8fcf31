"""Tables of a pattern that masks do not fit: left out by name, and their topics by a regular expression."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.table import Table
from tailrace_server.operations.checks import Requirement, requirements
from tailrace_server.worker.failures import Unfit, unfit_tables
from tailrace_spark.sinks.protocol import Capabilities
from tests.unit.server import requests
from tests.unit.tables import table

ORDERS = table({"id": "int"}, regular={"day": "date"}, keyspace="shop", name="orders")
DAYS = table({"day": "date"}, regular={"v": "int"}, keyspace="shop", name="days")
NO_DAYS = {"shop.*.day": "drop"}
PATTERN = r"tailrace\.shop\.[^.]*"


def required(url: str = "http://h/", **stream: object) -> list[Requirement]:
    settings = requests.settings({"hook": {"type": "http", "url": url}}, stream=stream)
    return [check for _, check in requirements(settings, "hook", Capabilities())]


def entry(of: Table, number: int) -> SchemaEntry:
    topic = f"tailrace.shop.{of.name}"
    return SchemaEntry(schema_id=number.to_bytes(8, "big"), topic=topic, table=of, avro="{}", announced=number)


@pytest.mark.promise("subscription.checked")
def test_a_table_that_does_not_fit_is_left_out_with_its_topic() -> None:
    unfit = unfit_tables(required(columns=NO_DAYS), [entry(ORDERS, 1), entry(DAYS, 2)], PATTERN, "*")
    assert list(unfit.reasons) == ["shop.days"]
    assert "it identifies rows" in unfit.reasons["shop.days"]
    without = unfit.without(PATTERN)
    assert re.fullmatch(without, "tailrace.shop.orders")
    assert not re.fullmatch(without, "tailrace.shop.days")
    assert re.fullmatch(without, "tailrace.shop.days2")


def test_where_nothing_fits_there_is_nothing_to_run() -> None:
    masked = required(columns=NO_DAYS)
    with pytest.raises(SettingsError, match="it identifies rows"):
        unfit_tables(masked, [entry(DAYS, 1)], PATTERN, "*")
    assert unfit_tables(masked, [entry(DAYS, 1)], "other", "*") == Unfit()
    assert unfit_tables(required(), [entry(DAYS, 1)], PATTERN, "*") == Unfit()


def test_a_table_without_the_column_that_routes_is_left_out() -> None:
    routed = required("http://h/{table}/{key.day}")
    unfit = unfit_tables(routed, [entry(ORDERS, 1), entry(DAYS, 2)], PATTERN, "*")
    assert list(unfit.reasons) == ["shop.orders"]
    assert "url names {key.day}, which is not in its partition key" in unfit.reasons["shop.orders"]


def test_tables_of_other_names_are_not_read_where_topics_begin_alike() -> None:
    unfit = unfit_tables((), [entry(ORDERS, 1), entry(DAYS, 2)], PATTERN, "shop.o*")
    assert unfit == Unfit({}, frozenset({"tailrace.shop.days"}))


@pytest.mark.slow
@given(topics=st.sets(st.from_regex(r"[a-z.\-_]{1,6}", fullmatch=True), max_size=5), data=st.data())
def test_a_pattern_without_topics_matches_all_others(topics: set[str], data: st.DataObject) -> None:
    excluded = data.draw(st.sets(st.sampled_from(sorted(topics)))) if topics else set[str]()
    pattern = Unfit({}, frozenset(excluded)).without("[a-z.\\-_]*")
    assert {topic for topic in topics if re.fullmatch(pattern, topic)} == topics - excluded
