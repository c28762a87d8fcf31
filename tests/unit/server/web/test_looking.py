"""Hosts, dead letters and last changes: what is read, and what is said where nothing answers."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from threading import Thread

import pytest

from tailrace_schemas.errors import ServiceError
from tailrace_schemas.position import Position
from tailrace_schemas.progress import Progress
from tailrace_schemas.ring import Node
from tailrace_server.api.metrics import Shared
from tailrace_server.meta.keys import Role
from tailrace_server.operations.asking import Asked
from tailrace_server.web.looking import hosts_of
from tests.support.waiting import until
from tests.unit.server.web.conftest import NewBrowser, Served

NOW = 1_000_000.0
ONE = "/subscriptions/shop.orders/warehouse"


def report(host: str, age: float = 1, lag: float | None = 1, **more: int | bool) -> Progress:
    done = None if lag is None else round((NOW - lag) * 1000)
    values = {"caught_up": True, **more}
    place = Position(1, 7, 42)
    return Progress("c", host, place, place, round((NOW - age) * 1000), complete_to=done, **values)  # type: ignore[arg-type]  # mixed values


def test_hosts_that_need_somebody_come_first() -> None:
    reports = [
        report("well"),
        report("silent", age=400),
        report("slow", lag=90, caught_up=False),
        report("parked", parked=3, quarantined=1),
        report("new", lag=None, caught_up=False),
    ]
    nodes = [Node("well", "dc1", (1,)), Node("never", "dc2", (2,))]
    hosts = {host.host: host for host in hosts_of(reports, nodes, NOW)}
    assert list(hosts) == ["never", "parked", "silent", "slow", "new", "well"]
    assert [hosts[name].well for name in hosts] == [False] * 4 + [True] * 2
    assert {name: host.state for name, host in hosts.items()} == {
        "never": "never published", "parked": "caught up", "silent": "silent", "slow": "behind", "new": "publishing",
        "well": "caught up",
    }  # fmt: skip
    assert (hosts["well"].datacenter, hosts["well"].position) == ("dc1", "segment 7, offset 42")
    assert len(hosts["parked"].advice) == 2


def test_a_host_has_the_name_that_its_agent_tells() -> None:
    named = replace(report("b"), name="cassandra-1")
    assert [host.name for host in hosts_of([named, report("a")], [], NOW)] == ["", "cassandra-1"]


def test_what_many_look_at_is_read_once() -> None:
    times, reads = iter([0.0, 1.0, 5.5]), iter(range(10))
    shared = Shared(lambda: next(reads), lambda: next(times))
    assert [shared.get() for _ in range(3)] == [0, 0, 1]


def test_who_has_waited_for_a_failure_is_told_it() -> None:
    """Each would wait as long again, where a database hangs."""
    times, asked, told = count(), list[int](), list[str]()

    def clock() -> float:
        asked.append(next(times))
        return asked[-1]

    def read() -> object:
        other.start()
        until(lambda: len(asked) == 2, "the other one")
        raise ServiceError("it is down")

    def get() -> None:
        try:
            shared.get()
        except ServiceError as error:
            told.append(str(error))

    shared, other = Shared(read, clock), Thread(target=get)
    get()
    other.join()
    assert told == ["it is down"] * 2


@pytest.mark.slow
def test_kafka_that_does_not_answer_is_said(browser: NewBrowser) -> None:
    text = browser(Role.READ).get("/hosts").text
    assert "Kafka: asking for topics" in text
    assert "No agent has reported yet" not in text


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
