"""Names by keys: other keys give other names, no value leaves its place in one, and templates are checked."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_common.sections.template import key_columns, require_route
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.topics import topic_component
from tailrace_spark.sinks.changelog.routes import Route, url_text, word
from tailrace_spark.sinks.http.settings import HttpSinkSettings
from tailrace_spark.sinks.kafka.settings import KafkaSinkSettings
from tailrace_spark.sinks.registry import open_sink
from tailrace_spark.sinks.table_faults import TableRefusedError
from tests.unit.spark.cassandra import Log, truncate
from tests.unit.tables import table

ORDERS = table({"country": "text", "id": "int"}, {"day": "int"}, regular={"v": "text"}, keyspace="shop", name="orders")
LOG = Log(ORDERS)
TRUNCATION = truncate(ORDERS, "a", 5)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def of(route: Route, country: str, number: int = 1) -> str:
    return route.of(LOG.insert((country, number), (1,), 1, v="x"))


@given(country=TEXTS, number=st.integers(-5, 5))
def test_an_address_gives_back_its_values_and_no_value_adds_a_step(country: str, number: int) -> None:
    parts = urlsplit(
        of(Route("https://h.example/{table}/{key.country}/{key.id}?of={key.country}", url_text), country, number)
    )
    assert (parts.scheme, parts.netloc, parts.fragment) == ("https", "h.example", "")
    assert [unquote(step) for step in parts.path.split("/")] == ["", "orders", country, str(number)]
    assert unquote(parts.query) == f"of={country}"
    assert "*" not in parts.path  # which stands for all keys


@given(first=TEXTS, second=TEXTS, escape=st.sampled_from([url_text, word, topic_component]))
def test_other_values_have_other_names(first: str, second: str, escape: Any) -> None:
    route = Route("a.{key.country}.b", escape)
    assert (of(route, first) == of(route, second)) == (first == second)


@given(country=TEXTS)
def test_a_value_is_one_word_of_a_routing_key_and_one_part_of_a_topic(country: str) -> None:
    assert len(of(Route("{keyspace}.{key.country}.{key.id}", word), country).split(".")) == 3
    topic = Route("{prefix}-out.{table}.{key.country}", topic_component, {"prefix": "t"})
    name = of(topic, country)
    assert name.startswith("t-out.orders.")
    assert re.fullmatch(r"[A-Za-z0-9_-]*", name.removeprefix("t-out.orders."))
    assert topic.pattern(ORDERS, "[A-Za-z0-9_-]*").fullmatch(name)


def test_all_changes_of_a_key_have_one_name_and_a_truncation_that_of_all_keys() -> None:
    route = Route("{table}.{key.country}", word)
    changes = [
        LOG.delete_partition(("DE", 1), 2),
        LOG.delete_range(("DE", 1), (1,), (2,), 3),
        LOG.delete(("DE", 1), (1,), 4),
    ]
    assert {route.of(change) for change in changes} == {of(route, "DE")} == {"orders.DE"}
    assert route.of(TRUNCATION) == "orders.*"
    assert Route("{table}", word).of(TRUNCATION) == "orders"


def test_a_column_that_is_not_in_the_partition_key_is_the_tables_fault() -> None:
    with pytest.raises(TableRefusedError, match=r"shop\.orders: the route names \{key\.day\}, which is not in its"):
        of(Route("{key.day}", word), "DE")


@pytest.mark.parametrize(
    "text",
    ["{country}", "{key.}", "{key.a!r}", "{key.a:>9}", "{", "}", "{key.a}{", "{}", "{0}", "{table.name}", "{table!x}"],
)
def test_a_template_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^may contain \{keyspace\}, \{table\} and columns of the partition key"):
        require_route(text, "keyspace", "table")


def test_columns_of_a_template() -> None:
    assert require_route("{table}/{key.a}/{key.b c}{{x}}{key.a}", "table")
    assert key_columns("{table}/{key.a}/{key.b c}{{x}}{key.a}") == ("a", "b c")
    assert HttpSinkSettings(url="http://h/{key.a}").routed_by == {"url": ("a",)}


@pytest.mark.promise("subscription.targets")
@pytest.mark.parametrize("topic", ["{prefix}.{keyspace}.{table}", "tailrace.schemas", "tailrace.copies.{table}"])
def test_the_topics_of_the_source_are_not_written(topic: str) -> None:
    with pytest.raises(SettingsError, match=r"sink\.out\.topic: .* is below topics.prefix, and would be read again"):
        open_sink("out", KafkaSinkSettings(topic=topic), "tailrace")


@pytest.mark.parametrize("topic", ["{key.a}.x", "{key.a}", "tail{key.a}", "{prefix}.{key.a}", "{prefix}.x.{key.a}"])
def test_no_value_chooses_how_a_topic_begins(topic: str) -> None:
    with pytest.raises(SettingsError, match=r"sink\.out\.topic: .*(topic's name begins|would be read again)"):
        open_sink("out", KafkaSinkSettings(topic=topic), "tailrace")
