"""How often a caller may ask: the bucket by an injected clock, then over HTTP with 429, Retry-After and metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.errors import ServiceError
from tailrace_server.api.access import MOST_NAMES, RateLimit
from tailrace_server.api.metrics import ServerMetrics
from tailrace_server.meta.credentials import Role
from tailrace_server.operations.remote import RemoteOperations
from tests.support.clock import ManualClock
from tests.support.process_metrics import process_metrics
from tests.unit.server.api.conftest import Served, serving

ROOT = Path(__file__).resolve().parents[4]


@dataclass
class Limited:
    served: Served
    clock: ManualClock

    def status(self, bearer: str) -> int:
        headers = {"Authorization": f"Bearer {bearer}"}
        return httpx2.get(f"{self.served.url}/v1/subscriptions", headers=headers, timeout=60).status_code


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Limited]:
    clock = ManualClock()
    with serving(tmp_path, limit=RateLimit(0.5, 3, clock)) as served:
        yield Limited(served, clock)


@pytest.mark.slow
@given(
    rate=st.floats(0.1, 100),
    burst=st.integers(1, 20),
    pauses=st.lists(st.floats(0, 10), min_size=1, max_size=60),
)
def test_no_span_of_time_has_more_than_burst_and_rate_allow(rate: float, burst: int, pauses: list[float]) -> None:
    clock = ManualClock()
    limit, taken = RateLimit(rate, burst, clock), list[float]()
    for pause in pauses:
        clock.now += pause
        seconds = limit.wait("key a")
        if seconds == 0:
            taken.append(clock.now)
        else:
            assert 0 < seconds <= 1 / rate + 1e-9
    for first, start in enumerate(taken):
        for count, end in enumerate(taken[first:], 1):
            assert count <= burst + (end - start) * rate + 1e-6


@pytest.mark.promise("subscription.rate-limits")
def test_behind_as_many_names_as_are_remembered_the_next_ones_are_limited_too() -> None:
    """They take the places of those that asked longest ago, so strangers take no memory without end."""
    limit = RateLimit(1, 1, ManualClock())
    assert limit.wait("key a") == 0
    for index in range(MOST_NAMES + 10):
        assert [limit.wait(f"address {index}") for _ in range(2)] == [0, 1]
        if index % 1_000 == 0:
            assert limit.wait("key a") == 1  # it has asked a moment ago
    assert len(limit._buckets) == MOST_NAMES
    assert limit.wait("address 0") == 0


@pytest.mark.slow
@pytest.mark.promise("subscription.rate-limits")
def test_too_many_requests_of_a_key_are_refused_and_others_go_on(limited: Limited) -> None:
    keys, url = limited.served.keys, f"{limited.served.url}/v1/subscriptions"
    assert [limited.status(keys[Role.READ]) for _ in range(4)] == [200, 200, 200, 429]
    refused = httpx2.get(url, headers={"Authorization": f"Bearer {keys[Role.READ]}"}, timeout=60)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "2")
    assert refused.json()["detail"].startswith("too many requests: come again in 2.0 s")
    assert limited.status(keys[Role.ADMIN]) == 200
    assert [limited.status(f"tailrace_guess{index}") for index in range(4)] == [401, 401, 401, 429]
    assert httpx2.get(f"{limited.served.url}/health", timeout=60).status_code == 200
    limited.clock.now += 2
    assert limited.status(keys[Role.READ]) == 200
    text = httpx2.get(f"{limited.served.url}/metrics", timeout=60).text
    assert 'tailrace_server_requests_limited_total{caller="key"} 2.0' in text
    assert 'tailrace_server_requests_limited_total{caller="address"} 1.0' in text
    assert 'tailrace_server_requests_total{status="429"} 3.0' in text


@pytest.mark.slow
@pytest.mark.promise("subscription.rate-limits")
@pytest.mark.parametrize(("proxies", "others"), [((), 429), (("127.0.0.1",), 200)])
def test_an_address_has_four_times_what_a_caller_has_for_all_its_requests(
    tmp_path: Path, proxies: tuple[str, ...], others: int
) -> None:
    """Those that need no key too, but for the one by which supervisors ask. Addresses are told by proxies alone."""
    clock = ManualClock()
    with serving(tmp_path, limit=RateLimit(0.5, 1, clock), proxies=proxies) as served:

        def status(address: str, path: str = "/openapi.json") -> int:
            return httpx2.get(served.url + path, headers={"X-Forwarded-For": address}, timeout=60).status_code

        assert [status("192.0.2.1") for _ in range(5)] == [200] * 4 + [429]
        assert [status("192.0.2.2"), status("192.0.2.1", "/health")] == [others, 200]
        clock.now += 0.5
        assert status("192.0.2.1") == 200


@pytest.mark.slow
def test_our_own_commands_wait_as_the_server_asks(limited: Limited) -> None:
    with RemoteOperations(limited.served.url, limited.served.keys[Role.READ], limited.clock.wait) as operations:
        for _ in range(5):
            operations.all()
    assert limited.clock.waits == [2, 2]

    def impatient(_seconds: float) -> None:
        """No time passes."""

    with (
        RemoteOperations(limited.served.url, limited.served.keys[Role.READ], impatient) as operations,
        pytest.raises(ServiceError, match="too many requests"),
    ):
        operations.all()


def test_every_metric_is_documented() -> None:
    document = (ROOT / "docs" / "metrics.md").read_text().split("\n## The server\n")[1].split("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)(?:\{[\w,]+\})?` \|", document, re.MULTILINE)
    metrics = ServerMetrics()
    metrics.watch(list)
    metrics.answered(200)
    names = re.findall(r"^# TYPE (\w+) ", metrics.text().decode(), re.MULTILINE)
    assert sorted([*listed, *process_metrics()]) == sorted(name for name in names if not name.endswith("_created"))
