"""The schema of a running agent: what is said of its changes."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from tailrace.capture.schema import LiveSchema
from tailrace.testing import Faults, MemorySchema
from tailrace_schemas.system_tables import system_tables
from tests.unit.tables import table

ORDERS = table({"id": "text"}, {}, {}, {"v": "int"}, keyspace="shop", name="orders")


def test_only_tables_of_users_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """A release's own tables differ from the built-in ones, or are not there: nobody changed them."""
    caplog.set_level(logging.INFO, "tailrace.capture")
    altered, _, *others = system_tables()
    live = [replace(altered, cdc=not altered.cdc), *others, ORDERS]
    schema = LiveSchema(MemorySchema(live, Faults()))
    difference = schema.refresh()
    assert (len(difference.added), len(difference.altered), len(difference.dropped)) == (1, 1, 1)
    assert caplog.messages == ["schema: added: shop.orders"]
    live.remove(others[0])
    schema.refresh()
    assert len(caplog.messages) == 1
    live.remove(ORDERS)
    schema.refresh()
    assert caplog.messages[1:] == ["schema: dropped: shop.orders"]
