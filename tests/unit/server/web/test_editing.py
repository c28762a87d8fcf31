"""Dead letters: who sees them, and what is said where Kafka does not answer."""

from __future__ import annotations

import pytest

from tailrace_server.meta.credentials import Role
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
@pytest.mark.parametrize("target", ["hook", "logs"])
def test_letters_of_every_sink_may_be_replayed(served: Served, browser: NewBrowser, target: str) -> None:
    """As far as Kafka answers, which it does not here."""
    served.operations.subscribe(Asked(table="shop.orders", name="warehouse", target=target))
    operator = browser(Role.OPERATE)
    answer = operator.post(f"{ONE}/letters/replay")
    assert (answer.status_code, "does not answer" in answer.text) == (503, True)


@pytest.mark.slow
def test_letters_that_cannot_be_read_are_said(served: Served, browser: NewBrowser) -> None:
    served.operations.subscribe(Asked(table="shop.orders", name="warehouse", target="hook"))
    text = browser(Role.OPERATE).get(f"{ONE}/letters").text
    assert "Kafka" in text
    assert "No dead letters" not in text
