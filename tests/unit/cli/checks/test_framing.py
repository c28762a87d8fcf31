"""`tailrace check` of the framings that the messages of a prefix have."""

from __future__ import annotations

import pytest

from tailrace.cli.checks.framing import judge_framing
from tailrace_schemas.avro import SchemaEntry
from tests.unit.tables import table

ORDERS = table({"id": "text"}, name="orders")


def entry(schema_id: bytes, topic: str = "p.shop.orders") -> SchemaEntry:
    return SchemaEntry(schema_id=schema_id, topic=topic, table=ORDERS, avro="{}")


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
