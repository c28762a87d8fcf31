"""Dead letters: who sees them, and what is said where Kafka does not answer."""

from __future__ import annotations

import pytest

from tailrace_server.meta.keys import Role
from tailrace_server.operations.asking import Asked
from tests.unit.server.web.conftest import NewBrowser, Served

ONE = "/subscriptions/shop.orders/warehouse"


@pytest.mark.slow
@pytest.mark.promise("subscription.access")
def test_letters_are_for_operators(served: Served, browser: NewBrowser) -> None:
    served.operations.subscribe(Asked(table="shop.orders", name="warehouse", target="memory"))
    reader = browser(Role.READ)
    assert reader.get(f"{ONE}/letters").status_code == 403
    assert reader.post(f"{ONE}/letters/replay").status_code == 403


@pytest.mark.slow
def test_letters_that_cannot_be_read_are_said(served: Served, browser: NewBrowser) -> None:
    served.operations.subscribe(Asked(table="shop.orders", name="warehouse", target="hook"))
    text = browser(Role.OPERATE).get(f"{ONE}/letters").text
    assert "Kafka" in text
    assert "No dead letters" not in text
