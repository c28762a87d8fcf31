"""Definitions of a cluster that changes while it is asked for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from tailrace_schemas.errors import ServiceError
from tailrace_spark.snapshot.session import ClusterView

ORDERS = {"keyspace_name": "shop", "table_name": "orders", "id": UUID(int=1), "cdc": True}


def view_of(**tables: list[dict[str, Any]]) -> ClusterView:
    """Of a cluster whose tables of `system_schema` have these rows."""
    view = object.__new__(ClusterView)

    def execute(query: str, _: object) -> list[dict[str, Any]]:
        return next((rows for name, rows in tables.items() if f"system_schema.{name}" in query), [])

    view._session = SimpleNamespace(execute=execute)
    return view


def test_a_table_that_is_dropped_between_two_answers_can_be_asked_for_again() -> None:
    """A stream goes on then. It would end where its settings were wrong."""
    view = view_of(tables=[ORDERS], columns=[])
    for ask in (lambda: view.find("shop", "orders"), view.tables_with_cdc):
        with pytest.raises(ServiceError, match=r"the definition of shop\.orders: "):
            ask()
    assert view_of(tables=[], columns=[]).find("shop", "orders") is None


@pytest.mark.parametrize("agreed", [True, False, None])
def test_nodes_that_do_not_agree_say_nothing_of_a_table(agreed: bool | None) -> None:
    """The driver gives None where it is closed meanwhile."""
    view = view_of()
    connection = SimpleNamespace(wait_for_schema_agreement=lambda **_: agreed)
    view._cluster = SimpleNamespace(control_connection=connection)
    if agreed:
        view.require_agreement()
    else:
        with pytest.raises(ServiceError, match="nodes have different schemas"):
            view.require_agreement()
