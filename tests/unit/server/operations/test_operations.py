"""The operations on a meta database, as the commands and the HTTP API ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace_common.settings import Settings
from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.model.errors import ConflictError, RefusedRequestError, UnknownSubscriptionError
from tailrace_server.operations.asking import Asked
from tailrace_server.operations.operations import Alteration, DirectOperations
from tailrace_server.sealing import Sealer

URL = "sqlite:///orders.db"


@pytest.fixture
def subscriptions(tmp_path: Path) -> Iterator[Subscriptions]:
    with MetaDatabase(f"sqlite:///{tmp_path / 'meta.db'}") as database:
        database.prepare()
        yield Subscriptions(database, Sealer(tmp_path / "server.key"))


@pytest.fixture
def operations(subscriptions: Subscriptions) -> DirectOperations:
    return DirectOperations(subscriptions, Settings(), "tester")


def ask(name: str = "warehouse", table: str = "shop.orders") -> Asked:
    return Asked(table=table, name=name, sink={"type": "sql", "url": URL})


def test_a_name_is_enough_where_it_is_the_only_one(operations: DirectOperations) -> None:
    operations.subscribe(ask())
    operations.subscribe(ask("both"))
    operations.subscribe(ask("both", "shop.*"))
    assert operations.pause("warehouse")["state"] == "paused"
    assert operations.resume("shop.orders/warehouse")["state"] == "active"
    with pytest.raises(UnknownSubscriptionError, match=r"several: shop.\*/both, shop.orders/both"):
        operations.pause("both")
    with pytest.raises(UnknownSubscriptionError, match=r"neither: there is no such subscription; there: shop.\*/both"):
        operations.pause("neither")


def test_what_is_altered_and_what_stays(operations: DirectOperations, subscriptions: Subscriptions) -> None:
    answer, _ = operations.subscribe(ask())
    operations.alter(
        "warehouse",
        Alteration(sink={"table": "{table}"}, where="id > 1", columns={"email": "mask"}, stream={"trigger_seconds": 5}),
    )
    assert subscriptions.settings(answer["id"]) == {"type": "sql", "url": URL, "table": "{table}"}
    operations.alter("warehouse", Alteration(sink={"table": None}, columns={"email": None}))
    details = operations.details("warehouse")
    assert subscriptions.settings(answer["id"]) == {"type": "sql", "url": URL}
    assert (details["where"], details["columns"], details["stream"]) == ("id > 1", {}, {"trigger_seconds": 5})
    assert operations.alter("warehouse", Alteration(where=""))["state"] == "active"
    assert operations.details("warehouse")["where"] is None
    with pytest.raises(RefusedRequestError, match=r"did you mean sink\.warehouse\.table"):
        operations.alter("warehouse", Alteration(sink={"tabel": "x"}))
    with pytest.raises(ConflictError, match="another type"):
        operations.alter("warehouse", Alteration(sink={"type": "kafka", "url": None}))


def test_a_reset_sets_offsets_or_a_start(operations: DirectOperations) -> None:
    operations.subscribe(ask())
    operations.reset("warehouse", "earliest", {("t", 0): 5})
    [partition] = operations.details("warehouse")["partitions"]
    assert partition == {"topic": "t", "partition": 0, "next": 5, "end": None, "behind": None}
    operations.reset("warehouse", "2026-05-01", None)
    details = operations.details("warehouse")
    assert (details["partitions"], details["start"]) == ([], "2026-05-01T00:00:00.000+00:00")


def test_who_did_what(operations: DirectOperations) -> None:
    operations.subscribe(ask())
    operations.cancel("warehouse")
    assert operations.all() == []
    assert [row["state"] for row in operations.all(cancelled=True)] == ["cancelled"]
    rows = operations.audit(None, 10)
    assert [(row["who"], row["operation"], row["subject"]) for row in rows] == [
        ("tester", "cancel", "shop.orders/warehouse"),
        ("tester", "subscribe", "shop.orders/warehouse"),
    ]
