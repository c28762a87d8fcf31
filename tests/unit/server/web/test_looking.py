"""Dead letters and last changes: who sees them, and what is said where nothing answers."""

from __future__ import annotations

import pytest

from tailrace_server.meta.keys import Role
from tailrace_server.operations.asking import Asked
from tests.unit.server.web.conftest import NewBrowser, Served

ONE = "/subscriptions/shop.orders/warehouse"


@pytest.mark.slow
@pytest.mark.promise("subscription.access")
def test_rows_and_letters_are_for_operators_and_rows_are_off(served: Served, browser: NewBrowser) -> None:
    served.operations.subscribe(Asked(table="shop.orders", name="warehouse", target="memory"))
    reader, operator = browser(Role.READ), browser(Role.OPERATE)
    for path in (f"{ONE}/changes", f"{ONE}/letters"):
        assert reader.get(path).status_code == 403
    assert reader.post(f"{ONE}/letters/replay").status_code == 403
    assert "server.show_changes = true" in operator.get(f"{ONE}/changes").text


@pytest.mark.slow
def test_letters_that_cannot_be_read_are_said(served: Served, browser: NewBrowser) -> None:
    served.operations.subscribe(Asked(table="shop.orders", name="warehouse", target="hook"))
    text = browser(Role.OPERATE).get(f"{ONE}/letters").text
    assert "Kafka" in text
    assert "No dead letters" not in text
