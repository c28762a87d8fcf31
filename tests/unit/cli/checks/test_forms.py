"""`tailrace check` of the forms that values have in a prefix's messages."""

from __future__ import annotations

from tailrace.cli.checks.forms import judge_forms
from tailrace_schemas.avro import Encoder, SchemaEntry, entry_from_record, schema_records
from tailrace_schemas.forms import PLAIN_FORMS, ValueForms
from tailrace_schemas.table import Table
from tests.unit.tables import table

ORDERS = table({"id": "uuid"}, regular={"v": "decimal"}, name="orders")
ITEMS = table({"id": "text"}, regular={"at": "timestamp"}, name="items")
FIXED = ValueForms(uuids="fixed")


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
