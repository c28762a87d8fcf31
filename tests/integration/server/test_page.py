"""The page in a real Chromium, over a real server with Kafka: by keyboard, on a narrow screen, held to WCAG AA.

It writes screenshots to build/screenshots.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tailrace.local import LocalKafka
from tailrace.local.ports import free_port
from tailrace_server.operations.asking import Asked
from tests.integration.feed import Feed
from tests.integration.items import ITEMS, LOG
from tests.integration.server.browser import looked_at
from tests.integration.server.servers import Site
from tests.unit.spark.sinks.contract import Database

WAIT = 180_000
"""Milliseconds; Spark has to start."""


def pressed(page: Any, name: str) -> None:
    """Go there by the keyboard alone, and press it."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("(document.activeElement.innerText || '').trim()") == name:
            page.keyboard.press("Enter")
            return
    raise AssertionError(f"the keyboard does not reach {name!r}")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_subscription_by_the_page(tmp_path: Path, kafka: LocalKafka, prefix: str, chromium: Any) -> None:
    port = free_port("127.0.0.1")
    site = Site(tmp_path, kafka, prefix, f"sqlite:///{tmp_path / 'meta.db'}", port=port)
    made = site.run("api-keys", "add", "maria", "--role", "admin")
    assert made.returncode == 0, made.stderr
    key, url = made.stdout.strip(), f"sqlite:///{tmp_path / 'sink.db'}"
    site.declare("warehouse", {"type": "sql", "url": url})
    site.declare("sick", {"type": "sql", "url": "postgresql://nobody:secret@127.0.0.1:1/nothing"})
    feed = Feed(kafka.bootstrap, prefix)
    feed.announce()
    feed.publish([LOG.insert((number,), (), 1000 + number, v=f"v{number}") for number in range(10)])
    with ExitStack() as stack:
        stack.callback(feed.close)
        server = stack.enter_context(site.server("server", both=True))
        server.until(lambda: "page: http://127.0.0.1" in server.log.read_text())
        context = chromium.new_context()
        page = context.new_page()
        page.set_default_timeout(WAIT)
        messages: list[str] = []
        page.on("console", lambda message: messages.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.goto(f"http://127.0.0.1:{port}/")
        looked_at(page, "sign-in")
        page.fill("#key", key)
        page.keyboard.press("Enter")
        page.wait_for_url("**/subscriptions")
        looked_at(page, "empty")
        pressed(page, "Subscribe to a table")
        page.wait_for_url("**/new")
        looked_at(page, "form")
        page.wait_for_selector("#tables option[value='shop.items']", state="attached")
        assert page.is_checked("#snapshot-never")  # this site's server.snapshot
        page.fill("#table", "shop.itemz")
        page.select_option("#target", "warehouse")
        page.click("#save")
        page.wait_for_selector("text=did you mean shop.items?")
        looked_at(page, "form-checked")
        page.fill("#table", "shop.items")
        page.click("#save")
        page.wait_for_url("**/shop.items/warehouse?done=subscribed")
        page.wait_for_selector("#now >> text=follows the log")  # without a reload
        database = Database(url)
        stack.callback(database.close)
        assert len(database.select("SELECT id FROM shop_items")) == 10
        looked_at(page, "subscription")
        page.goto(f"http://127.0.0.1:{port}/subscriptions/shop.items/warehouse/letters")
        page.wait_for_selector("text=No dead letters")
        page.goto(f"http://127.0.0.1:{port}/subscriptions/shop.items/warehouse")
        pressed(page, "Pause")
        page.wait_for_selector("#now >> text=stands still")
        pressed(page, "Resume")
        page.wait_for_selector("#now >> text=follows the log")
        with site.operations() as operations:
            operations.subscribe(Asked(table="shop.items", name="sick", target="sick"))
        page.goto(f"http://127.0.0.1:{port}/subscriptions")
        page.wait_for_selector("#list .state.failing")
        looked_at(page, "subscriptions")
        lines = page.evaluate("""(() => { const why = document.querySelector('#list .why');
            return why.getBoundingClientRect().height / parseFloat(getComputedStyle(why).lineHeight) })()""")
        assert lines < 4  # it is as wide as the table
        page.fill("#q", "warehouse")
        page.wait_for_selector("#list:not(:has-text('sick'))")
        page.goto(f"http://127.0.0.1:{port}/subscriptions/shop.items/sick")
        page.wait_for_selector("text=What to do:")
        assert "secret" not in page.content()
        looked_at(page, "failing")
        pressed(page, "Cancel")
        page.wait_for_url("**/cancel")
        looked_at(page, "cancel")
        pressed(page, "Cancel the subscription")
        page.wait_for_url("**/subscriptions")
        assert {row["name"] for row in site.states().values()} == {"warehouse"}
        for path in ("audit", "subscriptions/shop.items/warehouse/alter"):
            page.goto(f"http://127.0.0.1:{port}/{path}")
            looked_at(page, path.rpartition("/")[2])
        assert messages == []
        context.close()
        assert server.stop() == 0, server.words()
    assert feed.topic(ITEMS)
