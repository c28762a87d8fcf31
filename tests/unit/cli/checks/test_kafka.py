"""`tailrace check` of the forms that values have in a prefix's messages."""

from __future__ import annotations

import pytest

from tailrace.cli.checks.kafka import judge_forms, judge_framing
from tailrace_schemas.avro import Encoder, SchemaEntry, entry_from_record, schema_records
from tailrace_schemas.forms import PLAIN_FORMS, ValueForms
from tailrace_schemas.table import Table
from tests.unit.tables import table

ORDERS = table({"id": "uuid"}, regular={"v": "decimal"}, name="orders")
ITEMS = table({"id": "text"}, regular={"at": "timestamp"}, name="items")
FIXED = ValueForms(uuids="fixed")
FRAMED = table({"id": "text"}, name="orders")


def entries(of: Table, forms: ValueForms) -> list[SchemaEntry]:
    encoder = Encoder(of, "p", forms=forms)
    return [entry_from_record(key, value) for key, value in schema_records(encoder, f"p.shop.{of.name}")]


def test_one_form_is_all_right_and_named() -> None:
    row = judge_forms([*entries(ORDERS, FIXED), *entries(ITEMS, FIXED)], "p", FIXED)
    assert (row.ok, row.advice) == (True, "")
    assert row.detail == 'timestamps = "plain", uuids = "fixed", decimals = "string"'


def test_schemas_of_other_forms_are_named_by_setting_and_topic() -> None:
    """Another agent's, or those from before a setting was changed; a table without such columns has one schema."""
    others = ValueForms("logical", "fixed", "bytes")
    known = [*entries(ORDERS, PLAIN_FORMS), *entries(ORDERS, others), *entries(ITEMS, PLAIN_FORMS)]
    row = judge_forms(known, "p", PLAIN_FORMS)
    assert row.ok
    assert 'both: decimals = "bytes" in p.shop.orders; uuids = "fixed" in p.shop.orders,' in row.detail
    assert 'new messages here: timestamps = "plain", uuids = "string", decimals = "string"' in row.detail
    assert "give all agents the same [avro]" in row.advice
    row = judge_forms(known, "p", others)
    assert row.detail.startswith(
        'both: decimals = "string" in p.shop.orders; timestamps = "plain" in p.shop.items; uuids = "string" in '
        "p.shop.orders, by other agents"
    )


def test_a_schema_that_no_setting_makes_is_passed_over() -> None:
    """Of another version of Tailrace."""
    (entry, _) = entries(ORDERS, PLAIN_FORMS)
    older = SchemaEntry(schema_id=entry.schema_id, topic=entry.topic, table=entry.table, avro='{"type":"record"}')
    assert judge_forms([older], "p", FIXED).advice == ""


def entry(schema_id: bytes, topic: str = "p.shop.orders") -> SchemaEntry:
    return SchemaEntry(schema_id=schema_id, topic=topic, table=FRAMED, avro="{}")


OWN = entry(bytes(8))
REGISTRY = entry(bytes(4), "p.shop.items")


@pytest.mark.promise("commands.check")
@pytest.mark.parametrize(
    ("entries", "store", "both"),
    [
        ([], "topic", False),
        ([], "registry", False),
        ([OWN], "topic", False),
        ([REGISTRY], "registry", False),
        ([OWN], "registry", True),
        ([REGISTRY], "topic", True),
        ([OWN, REGISTRY], "topic", True),
        ([OWN, REGISTRY], "registry", True),
    ],
)
def test_both_framings_in_a_prefix_are_named(entries: list[SchemaEntry], store: str, both: bool) -> None:
    """Also where they will be: with the next message."""
    row = judge_framing(entries, store)
    assert row.ok
    assert row.detail.startswith("both") is both
    assert ("topics.prefix" in row.advice) is both


def test_the_topics_with_the_other_framing_are_named() -> None:
    assert "messages of p.shop.orders begin with C3 01" in judge_framing([OWN, REGISTRY], "registry").detail
    assert "messages of p.shop.items begin with 00" in judge_framing([OWN, REGISTRY], "topic").detail


def test_what_stock_deserializers_do_with_the_default_is_said() -> None:
    assert "stock deserializers of Confluent's do not" in judge_framing([], "topic").detail
