"""What an operator sees of subscriptions on a running server whose Kafka hangs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tailrace.local import LocalKafka
from tailrace.local.ports import free_port
from tests.integration.feed import Feed
from tests.integration.items import LOG, Row, rows
from tests.integration.server.servers import Site
from tests.integration.streams import read_metrics
from tests.unit.spark.sinks.contract import databases

WRITTEN = 1_700_000_000_000_000
PATIENCE = 15.0
"""Seconds in which a Kafka that hangs is not said (docs/subscriptions.md)."""
LOOKS = 15.0
"""Seconds between two looks of a worker, and as long as one of them takes, at most."""


@contextmanager
def stopped(process: int) -> Iterator[None]:
    """A process that takes connections and answers nothing, while inside."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def test_a_kafka_that_hangs_is_said_in_list_log_and_metrics_and_so_is_its_return(prefix: str, tmp_path: Path) -> None:
    """Two that read together are `failing` within half a minute, not at once, and active again by themselves."""
    port, names = free_port("127.0.0.1"), ("left", "right")
    urls = [f"sqlite:///{tmp_path / name}.db" for name in names]
    with (
        LocalKafka(tmp_path / "kafka") as broker,
        closing(Feed(broker.bootstrap, prefix)) as feed,
        databases(urls) as stores,
    ):
        site = Site(tmp_path, broker, prefix, f"sqlite:///{tmp_path / 'meta.db'}", port=port)

        def are(state: str) -> bool:
            return {one["state"] for one in site.states().values()} == {state}

        def have(*expected: Row) -> bool:
            return all(rows(store) == [*expected] for store in stores)

        feed.announce()
        feed.publish([LOG.insert((1,), (), WRITTEN, v="a")])
        for name, url in zip(names, urls, strict=True):
            site.subscribe(name, "shop.items", url)
        with site.server("one", both=True) as server:
            server.until(lambda: have((1, "a", None)) and are("active"))

            with stopped(broker.pid):
                began = time.monotonic()
                server.until(lambda: are("failing"), PATIENCE + LOOKS)
                assert time.monotonic() - began > PATIENCE - 1
                for state in site.states().values():
                    assert state["reason"].startswith("Kafka does not answer: ")
                    assert state["action"] == "Start Kafka or fix kafka.bootstrap.servers. The worker must reach it."
                metric = 'tailrace_subscription_state{state="failing",subscription="shop.items/left"} 1.0'
                server.until(lambda: metric in read_metrics(port))

            server.until(lambda: are("active"))
            assert [state["reason"] for state in site.states().values()] == ["", ""]
            feed.publish([LOG.insert((2,), (), WRITTEN, v="b")])
            server.until(lambda: have((1, "a", None), (2, "b", None)))
            assert server.stop() == 0, server.words()
        words = server.log.read_text()

    for name in names:
        assert f"shop.items/{name} fails: Kafka does not answer" in words
        assert f"shop.items/{name} works again" in words
        assert f"subscription=shop.items/{name}" in words  # as a field of the lines that the stream logs for it
