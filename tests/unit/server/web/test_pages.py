"""What the pages show: lists, filters, states, errors with what to do, the audit; and that all of it is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from tailrace_server.meta.credentials import Role
from tailrace_server.meta.leases import Leases
from tailrace_server.meta.tables import progress
from tailrace_server.model.delivery import News
from tailrace_server.model.transitions import failed
from tailrace_server.operations.asking import Asked
from tailrace_server.web.rendering import View
from tests.unit.server.requests import SECRET
from tests.unit.server.web.conftest import NewBrowser, Served

EVIL = "<script>alert('x')</script>"
ESCAPED = "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;"


def asked(served: Served, name: str, table: str = "shop.orders", **more: Any) -> int:
    return int(served.operations.subscribe(Asked(table=table, name=name, target="dwh", **more))[0]["id"])


def claimed(served: Served) -> Leases:
    """A worker that has all of them."""
    leases = Leases(served.database, served.site.settings.topics.prefix, "the-worker", 60)
    leases.renew(0)
    return leases


def in_order(text: str, words: Sequence[str]) -> bool:
    indexes = [text.index(word) for word in words]
    return indexes == sorted(indexes)


@pytest.mark.slow
def test_an_empty_list_says_what_to_do(browser: NewBrowser) -> None:
    assert "Nobody has asked for a table yet" in browser(Role.OPERATE).page.text
    reader = browser(Role.READ)
    assert ("Your key may read" in reader.page.text, "Subscribe to a table" in reader.page.text) == (True, False)


@pytest.mark.slow
def test_the_list_and_its_filter(served: Served, browser: NewBrowser) -> None:
    for name in ("warehouse", "lake", "search"):
        asked(served, name)
    leases = claimed(served)
    for claim in leases.claim(10):
        if claim.subscription.name == "search":
            leases.report(claim, partial(failed, reason=f"the store says {EVIL}", action="mend it"))
    served.operations.pause("lake")
    reader = browser(Role.READ)
    text = reader.page.text
    assert in_order(text, ["shop.orders/search", "shop.orders/lake", "shop.orders/warehouse"])  # what fails first
    assert "1 failing" in text
    assert (ESCAPED in text, EVIL in text) == (True, False)
    assert "shop.orders/lake" not in reader.get("/subscriptions?q=WARE+shop").text
    assert "shop.orders/warehouse" in reader.page.text
    assert "shop.orders/lake" in reader.get("/subscriptions?state=paused").text
    assert "shop.orders/warehouse" not in reader.page.text
    nothing = reader.get(f"/subscriptions?q=nothing{EVIL}").text
    assert ("None of 3 fits" in nothing, EVIL in nothing, ESCAPED in nothing) == (True, False, True)
    served.operations.cancel("lake")
    assert "shop.orders/lake" in reader.get("/subscriptions?state=cancelled").text
    assert SECRET not in text


@pytest.mark.slow
def test_one_subscription(served: Served, browser: NewBrowser) -> None:
    identity = asked(
        served, "warehouse", where="country = 'DE'", columns={"email": "mask"}, stream={"trigger_seconds": 5}
    )
    with served.database.transaction() as connection:
        values = {"subscription": identity, "topic": "t", "kafka_partition": 3, "next_offset": 4711, "end_offset": 4720}
        connection.execute(sa.insert(progress).values(**values, changed=0))
    reader = browser(Role.READ)
    text = reader.get("/subscriptions/shop.orders/warehouse").text
    for words in ("country = &#39;DE&#39;", "Column email", "stream.trigger_seconds", "4711", "4720", "dwh"):
        assert words in text
    assert SECRET not in text
    leases = claimed(served)
    [claim] = leases.claim(10)
    leases.report(claim, partial(failed, reason="it is down", action="start it"))
    text = reader.get("/subscriptions/shop.orders/warehouse").text
    assert in_order(text, ["It fails", "it is down", "What to do", "start it"])
    assert "the-worker" in text


@pytest.mark.slow
def test_what_a_sink_refused_is_seen_at_once(served: Served, browser: NewBrowser) -> None:
    asked(served, "warehouse")
    reader = browser(Role.READ)
    assert "dead letters" not in reader.get("/subscriptions").text
    leases = claimed(served)
    [claim] = leases.claim(10)
    leases.save(claim, {}, News(wrote=True, letters=4136, complete_seconds=0))
    assert in_order(reader.get("/subscriptions").text, ["Dead letters", "4,136", "the first"])
    text = reader.get("/subscriptions/shop.orders/warehouse").text
    assert "the sink refused 4,136 records" in text
    assert "<code>tailrace subscriptions shop.orders/warehouse --letters</code>" in text


@pytest.mark.slow
def test_a_pattern_has_a_page_of_its_own(served: Served, browser: NewBrowser) -> None:
    asked(served, "all", table="shop.o?ders*")
    operator = browser(Role.OPERATE)
    assert 'href="/subscriptions/shop.o%3Fders%2A/all"' in operator.page.text
    assert operator.get("/subscriptions/shop.o%3Fders%2A/all").status_code == 200
    operator.post("/subscriptions/shop.o%3Fders%2A/all/pause")
    assert served.operations.details("all")["state"] == "paused"


@pytest.mark.slow
def test_what_is_not_there(served: Served, browser: NewBrowser) -> None:
    reader = browser(Role.READ)
    answer = reader.get("/subscriptions/shop.orders/nobody")
    assert (answer.status_code, "no such subscription" in answer.text) == (404, True)
    assert reader.get(f"/subscriptions/shop.orders/{EVIL}").status_code == 404
    assert EVIL not in reader.page.text
    asked(served, "warehouse")
    served.operations.cancel("warehouse")
    operator = browser(Role.OPERATE)
    operator.get("/subscriptions")
    assert operator.post("/subscriptions/shop.orders/warehouse/pause").status_code == 404


@pytest.mark.slow
def test_a_reset_with_the_rows_of_the_tables(served: Served, browser: NewBrowser) -> None:
    asked(served, "warehouse")
    served.operations.reset("warehouse", "earliest", {("t", 0): 5})
    operator, one = browser(Role.OPERATE), "/subscriptions/shop.orders/warehouse"
    assert 'name="snapshot"' in operator.get(f"{one}/reset").text
    for time in ("soon", ""):
        answer = operator.post(f"{one}/reset", start="time", time=time)
        assert (answer.status_code, f"start &#34;{time}&#34;: must be" in answer.text) == (422, True)
    answer = operator.post(f"{one}/reset", start="stay")
    assert (answer.status_code, "goes with the rows of the tables alone" in answer.text) == (422, True)
    operator.post(f"{one}/reset", start="stay", snapshot="on")
    details = served.operations.details("warehouse")
    assert (details["stage"], [row["next"] for row in details["partitions"]]) == ("snapshot", [5])
    operator.get(f"{one}/reset")
    operator.post(f"{one}/reset", start="latest", snapshot="on")
    details = served.operations.details("warehouse")
    assert (details["start"], details["partitions"]) == ("latest", [])


@pytest.mark.slow
def test_the_audit(served: Served, browser: NewBrowser) -> None:
    asked(served, "warehouse")
    served.operations.pause("warehouse")
    admin = browser(Role.ADMIN)
    text = admin.get("/audit?reference=warehouse").text
    assert in_order(text, ["pause", "state: active → paused", "subscribe"])
    assert SECRET not in text


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"snapshot": "never"}, "not copied"),
        ({"stage": "snapshot"}, "to be copied"),
        ({"stage": "snapshot", "snapshot_percent": 41.7}, "copying, 41.7 %"),
        ({"snapshot_percent": 100}, "copied"),
        ({"snapshot_percent": 50}, "copied in part, 50 %"),
        ({}, "none to copy"),
    ],
)
def test_what_becomes_of_existing_rows(values: dict[str, Any], words: str) -> None:
    row = {"stage": "log", "snapshot": "initial", "snapshot_percent": None}
    assert View({**row, **values}).existing_rows == words


@pytest.mark.slow
def test_a_list_says_how_far_each_is_in_time_and_why_one_fails_across_its_width(
    served: Served, browser: NewBrowser
) -> None:
    asked(served, "warehouse")
    leases = claimed(served)
    [claim] = leases.claim(10)
    leases.save(claim, {}, News(wrote=True, complete_seconds=1879))
    leases.report(claim, partial(failed, reason="it is down", action="start it"))
    text = browser(Role.READ).get("/subscriptions").text
    assert in_order(text, ["Existing rows", "to be copied", "31 min", '<td colspan="6">', "it is down", "start it"])
    page = browser(Role.READ).get("/subscriptions/shop.orders/warehouse").text
    assert in_order(page, ["Existing rows", "to be copied", "Records behind", "31 min", "Last written"])


@pytest.mark.parametrize(
    ("values", "stage"),
    [
        ({"owner": None, "running": False}, "waits for a worker"),
        ({"owner": "killed", "running": False}, "waits for a worker"),
        ({"behind": None}, "starting"),
        ({"behind": None, "reason": "shop.orders has no cdc"}, "waits for its table"),
        ({"behind": 0}, "follows the log"),
        ({"behind": 0, "reason": "existing rows are not copied of shop.orders: it has counters"}, "follows the log"),
        ({"behind": 7}, "catching up"),
        ({"stage": "snapshot", "behind": None}, "snapshot"),
        ({"stage": "snapshot", "snapshot_percent": 12.5}, "snapshot, 12.5 %"),
        ({"state": "failing"}, "will try again"),
        ({"state": "paused"}, "stands still"),
        ({"state": "cancelled"}, "ended"),
    ],
)
def test_stages(values: dict[str, Any], stage: str) -> None:
    row = {
        "state": "active",
        "owner": "w",
        "running": True,
        "behind": 0,
        "stage": "log",
        "snapshot_percent": None,
        "reason": "",
    }
    assert View({**row, **values}).stage == stage
