"""Health as a value, and as HTTP shows it."""

from __future__ import annotations

import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tailrace.ops.headroom import Headroom
from tailrace.ops.health import HealthBoard, RingHealth, RingState
from tailrace.ops.server import HealthServer
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.position import Position
from tests.support.clock import ManualClock
from tests.support.process_metrics import process_metrics

ROOT = Path(__file__).parents[3]


RING = RingHealth(generation=1_760_000_065_500, state=RingState.SETTLING, waits_for="5 s more", nodes=4)


@pytest.fixture
def clock() -> ManualClock:
    """Time that stands still."""
    return ManualClock()


@pytest.fixture
def board(clock: ManualClock) -> HealthBoard:
    return HealthBoard(clock)


@pytest.fixture
def server(board: HealthBoard) -> Iterator[HealthServer]:
    with HealthServer(board, "127.0.0.1", 0) as server:
        yield server


def get(server: HealthServer, path: str) -> tuple[int, object]:
    """Status code and JSON body."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_counts_add_up_and_causes_come_and_go(board: HealthBoard) -> None:
    """News is told once; what is known already is none."""
    board.count(changes=2, transactions=1)
    board.count(changes=3)
    assert dict(board.now.counts) == {"changes": 5, "transactions": 1}
    assert board.degrade("schema", "Cassandra is down")
    assert not board.degrade("schema", "Cassandra is down")
    assert board.degrade("schema", "still down")
    assert board.recover("schema")
    assert not board.recover("schema")
    assert board.now.degraded == {}


def test_live_while_the_loop_moves(board: HealthBoard, server: HealthServer, clock: ManualClock) -> None:
    """A loop that stands still for a minute is not."""
    assert get(server, "/health/live") == (200, {"live": True})
    clock.now = 61
    assert get(server, "/health/live") == (503, {"live": False})
    board.alive()
    assert get(server, "/health/live") == (200, {"live": True})


def test_ready_when_it_publishes(board: HealthBoard, server: HealthServer) -> None:
    """Not while it starts, nor while Kafka is away."""
    assert get(server, "/health/ready") == (503, {"ready": False})
    board.ready(True)
    assert get(server, "/health/ready") == (200, {"ready": True})


def test_status_says_everything(board: HealthBoard, server: HealthServer) -> None:
    """Also to a reader who knows no code."""
    board.ready(True)
    board.about(cluster="c")
    board.about(tables="shop.orders")
    board.committed(Position(1, 77, 4096))
    board.degrade("held", "stopped at 1/77:4100: table id x is in no known schema")
    board.count(changes=7)
    board.published({"p.shop.orders": 7})
    assert get(server, "/stats") == (404, {"error": "paths: /, /health/live, /health/ready, /status, /metrics"})
    assert get(server, "/status?verbose") == (
        200,
        {
            "live": True,
            "ready": True,
            "about": {"cluster": "c", "tables": "shop.orders"},
            "uptime_seconds": 0,
            "degraded": {"held": "stopped at 1/77:4100: table id x is in no known schema"},
            "committed": {"epoch": 1, "segment": 77, "offset": 4096},
            "counts": {"changes": 7},
            "published": {"p.shop.orders": 7},
            "gauges": {},
            "lag_seconds": {},
            "behind_seconds": 0.0,
            "cdc_raw": None,
            "ring": None,
        },
    )
    board.headroom(Headroom(75 << 20, 100 << 20, 1024.4, 7))
    _, status = get(server, "/status")
    assert isinstance(status, dict)
    assert status["cdc_raw"] == {
        "used_bytes": 75 << 20,
        "limit_bytes": 100 << 20,
        "bytes_per_second": 1024,
        "seconds_to_full": 25590,
        "spooled_bytes": 7,
        "words": "75 MiB of 100 MiB in cdc_raw (75 %), full in about 7 h at the present rate",
    }
    board.ring(RING)
    _, status = get(server, "/status")
    assert isinstance(status, dict)
    assert status["ring"] == {
        "generation": 1_760_000_065_500,
        "state": "settling",
        "waits_for": "5 s more",
        "nodes": 4,
    }


def test_threads_that_count_at_once_lose_nothing(board: HealthBoard) -> None:
    """The run loop, and who looks after cdc_raw."""

    def count() -> None:
        for _ in range(2000):
            board.count(changes=1)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            for _ in range(4):
                pool.submit(count)
    finally:
        sys.setswitchinterval(interval)
    assert board.now.counts == {"changes": 8000}


def text(server: HealthServer, path: str, accept: str = "*/*") -> tuple[str, str]:
    """Content type and content."""
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        connection.request("GET", path, headers={"Accept": accept})
        answer = connection.getresponse()
        assert answer.status == 200
        return answer.headers["Content-Type"], answer.read().decode()


def samples(exposed: str) -> dict[tuple[str, str], float]:
    """(name, the label's value or "") -> value, as Prometheus' own parser reads them."""
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in text_string_to_metric_families(exposed)
        for sample in family.samples
        if not sample.name.startswith("process_")
    }


def test_prometheus_reads_the_metrics(board: HealthBoard, server: HealthServer, clock: ManualClock) -> None:
    content_type, exposed = text(server, "/metrics")
    assert content_type.startswith("text/plain")
    assert samples(exposed)["tailrace_ready", ""] == 0
    board.ready(True)
    board.count(changes=7, mutations=9, transactions=2, released=1)
    board.published({"p.shop.orders": 5, 'p.shop.a"b': 2})
    board.published({"p.shop.orders": 1})
    board.committed(Position(1, 77, 4096))
    board.count(spooled=3, dropped=4, lost=5)
    board.count(parked=8, unparked=2, lost_parked=1, dead_letters=3, schema_inferred=4)
    board.gauge(parked_now=6, waiting_segments=2, waiting_bytes=4096)
    board.lags({"p.shop.orders": 1.5, 'p.shop.a"b': -3.0})
    board.headroom(Headroom(60, 100, 2.0, 7))
    board.ring(RING)
    board.count(proposals=5, proposals_won=2, proposals_late=1, generation_failures=4, ring_failures=6)
    board.degrade("segment 12", "quarantined")
    board.degrade("segment 13", "quarantined")
    clock.now = 30
    assert samples(text(server, "/metrics")[1]) == {
        ("tailrace_live", ""): 1,
        ("tailrace_ready", ""): 1,
        ("tailrace_behind_seconds", ""): 30,
        ("tailrace_problems", "segment"): 2,
        ("tailrace_changes_total", "p.shop.orders"): 6,
        ("tailrace_changes_total", 'p.shop.a"b'): 2,
        ("tailrace_mutations_total", ""): 9,
        ("tailrace_transactions_total", ""): 2,
        ("tailrace_segments_released_total", ""): 1,
        ("tailrace_segments_spooled_total", ""): 3,
        ("tailrace_segments_dropped_total", ""): 4,
        ("tailrace_topics_recreated_total", ""): 0,
        ("tailrace_lag_seconds", "p.shop.orders"): 1.5,
        ("tailrace_lag_seconds", 'p.shop.a"b'): 0,
        ("tailrace_waiting_segments", ""): 2,
        ("tailrace_waiting_bytes", ""): 4096,
        ("tailrace_parked_now", ""): 6,
        ("tailrace_parked_total", ""): 8,
        ("tailrace_unacknowledged_losses", ""): 0,
        ("tailrace_unparked_total", ""): 2,
        ("tailrace_parked_lost_total", ""): 1,
        ("tailrace_dead_letters_total", ""): 3,
        ("tailrace_changes_schema_inferred_total", ""): 4,
        ("tailrace_losses_total", "lost"): 5,
        ("tailrace_losses_total", "unknown"): 0,
        ("tailrace_cdc_raw_bytes", ""): 60,
        ("tailrace_cdc_raw_limit_bytes", ""): 100,
        ("tailrace_cdc_raw_growth_bytes", ""): 2,
        ("tailrace_cdc_raw_full_seconds", ""): 20,
        ("tailrace_spool_bytes", ""): 7,
        ("tailrace_ring_state", "unknown"): 0,
        ("tailrace_ring_state", "changing"): 0,
        ("tailrace_ring_state", "settling"): 1,
        ("tailrace_ring_state", "due"): 0,
        ("tailrace_ring_state", "covered"): 0,
        ("tailrace_ring_nodes", ""): 4,
        ("tailrace_generation_timestamp_seconds", ""): 1_760_000_065.5,
        ("tailrace_generation_proposals_total", ""): 5,
        ("tailrace_generation_proposals_won_total", ""): 2,
        ("tailrace_generation_proposals_late_total", ""): 1,
        ("tailrace_generation_failures_total", ""): 4,
        ("tailrace_ring_failures_total", ""): 6,
        ("tailrace_committed_epoch", ""): 1,
        ("tailrace_committed_segment", ""): 77,
        ("tailrace_committed_offset", ""): 4096,
    }
    board.caught_up()
    assert samples(text(server, "/metrics")[1])["tailrace_behind_seconds", ""] == 0


def test_every_metric_is_documented(board: HealthBoard, server: HealthServer) -> None:
    board.committed(Position(1, 77, 4096))
    board.headroom(Headroom(60, 100, 2.0))
    board.ring(RING)
    board.gauge(waiting_segments=2, waiting_bytes=4096, mirrored_generations=1)
    board.gauge(selected_tables=1, unselected_tables=0, unmatched_patterns=0, bypassing_tables=0)
    board.gauge(transaction_bytes=1 << 20, transaction_seconds=10, kafka_bytes_per_second=400_000)
    document, _ = (ROOT / "docs" / "metrics.md").read_text().split("\n## The stream\n")
    listed = re.findall(r"^\| `(\w+)(?:\{\w+\})?` \|", document, re.MULTILINE)
    names = re.findall(r"^# TYPE (\w+) ", text(server, "/metrics")[1], re.MULTILINE)
    assert sorted([*listed, *process_metrics()]) == sorted(names)


def test_people_get_a_page(board: HealthBoard, server: HealthServer) -> None:
    board.degrade("held", "stopped: table <script> is in no known schema")
    board.committed(Position(1, 77, 4096))
    board.published({"p.shop.orders": 12345})
    content_type, shown = text(server, "/status", "text/html,application/xhtml+xml")
    assert content_type == "text/html; charset=utf-8"
    assert "not publishing" in shown
    assert "table &lt;script&gt; is" in shown
    assert "<script>" not in shown
    assert "12,345" in shown
    board.recover("held")
    board.ready(True)
    assert "<h1 class=good>publishing</h1>" in text(server, "/", "text/html")[1]


def test_the_page_says_whose_agent_it_is(board: HealthBoard, server: HealthServer) -> None:
    board.about(node="10.0.0.1 in dc1, host id a", prefix="p<", tables="shop.orders")
    shown = text(server, "/", "text/html")[1]
    assert "<tr><th>node<td>10.0.0.1 in dc1, host id a<tr><th>prefix<td>p&lt;<tr><th>tables<td>shop.orders" in shown
    assert "<tr><th>uptime<td>0:00:00" in shown


def test_terminals_get_a_summary_in_plain_text(board: HealthBoard, server: HealthServer) -> None:
    """What curl shows of the address that the log names."""
    board.about(node="10.0.0.1 in dc1, host id a", prefix="p")
    board.degrade("service", "Kafka at k:1 is unreachable")
    board.published({"p.shop.orders": 12345})
    board.lags({"p.shop.orders": 0.25})
    content_type, shown = text(server, "/")
    assert content_type == "text/plain; charset=utf-8"
    assert shown == (
        "not publishing\n\n"
        "Problems\n  service  Kafka at k:1 is unreachable\n\n"
        "Agent\n  node    10.0.0.1 in dc1, host id a\n  prefix  p\n  uptime  0:00:00\n\n"
        "Progress\n  published up to  nothing yet\n  last caught up   0.0 s ago\n  run loop         moving\n\n"
        "Changes since the start, by topic\n"
        "  p.shop.orders  12,345; the latest was published 0.2 s after its write\n\n"
        "For programs: /status as JSON, /metrics for Prometheus, /health/live and /health/ready for probes.\n"
    )


def test_a_port_in_use_is_a_wrong_setting(board: HealthBoard, server: HealthServer) -> None:
    """Named by its setting."""
    with pytest.raises(SettingsError, match=r"agent\.health_address: cannot listen on 127\.0\.0\.1"):
        HealthServer(board, "127.0.0.1", server.port)
