"""`tailrace drain`: what it takes for published, and what it says where that does not come."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tailrace.cli.drain import Waiting, until_published
from tailrace.cli.main import complete
from tailrace.local.ports import free_port
from tailrace.ops.health import Health, HealthBoard
from tailrace.ops.server import HealthServer
from tailrace_schemas.errors import ServiceError
from tests.support.clock import ManualClock


def status(looks: int | None, **gauges: float) -> dict[str, Any]:
    counts = {} if looks is None else {"all_published": looks}
    return {"counts": counts, "gauges": gauges, "degraded": {"kafka": "Kafka does not answer"}}


def wait(answers: Iterator[Mapping[str, Any] | None], seconds: float = 60) -> tuple[int, float]:
    """The parked mutations, and how long it took."""
    clock = ManualClock()
    answer = until_published(lambda: next(answers), seconds, Waiting(clock, clock.wait))
    return answer["gauges"].get("parked_now", 0), clock()


def test_it_waits_for_a_look_that_began_after_it() -> None:
    # The look that ends as 8 may have begun before: only 9 cannot.
    parked, seconds = wait(iter([status(7), status(7), status(8), status(8), status(9)]))
    assert (parked, seconds) == (0, 1.0)


def test_an_agent_that_starts_meanwhile_counts_from_its_start() -> None:
    answers = [None, status(7), None, status(None), status(1), status(2, parked_now=3)]
    assert wait(iter(answers)) == (3, 1.25)


def test_what_waits_is_said_at_the_end_of_the_time() -> None:
    def stuck() -> Iterator[Mapping[str, Any]]:
        while True:
            yield status(7, waiting_bytes=5 << 20)

    with pytest.raises(ServiceError, match=r"5 MiB wait in cdc_raw.*: Kafka does not answer"):
        wait(stuck(), 3)
    with pytest.raises(ServiceError, match=r"does not answer at agent\.health_port"):
        wait(iter([None]), 0)


def test_an_agent_without_an_endpoint_is_a_wrong_setting(tmp_path: Path) -> None:
    file = tmp_path / "tailrace.toml"
    file.write_text("[agent]\nhealth_port = 0\n")
    ended = CliRunner().invoke(complete(), ["drain", "-c", str(file)])
    assert ended.exit_code != 0
    assert "agent.health_port is 0" in str(ended.exception) + ended.output


def test_a_proxy_of_the_environment_is_not_asked_for_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port('127.0.0.1')}")
    file = tmp_path / "tailrace.toml"
    with HealthServer(HealthBoard(ManualClock()), "127.0.0.1", 0) as agent:
        file.write_text(f"[agent]\nhealth_port = {agent.port}\n")
        ended = CliRunner().invoke(complete(), ["drain", "-c", str(file), "--live-node", "--timeout", "0"])
    assert "the agent has not published all" in ended.output


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (TimeoutError("timed out"), "still serves CQL after 0 s"),
        (ConnectionRefusedError(), "the agent does not answer"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "the agent does not answer"),
    ],
)
def test_a_node_that_hangs_has_not_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: OSError, said: str
) -> None:
    """Else all would be said to be in Kafka before it logs more, and its volume goes away."""

    def refuse(*_: object) -> None:
        raise fault

    monkeypatch.setattr("socket.create_connection", refuse)
    file = tmp_path / "tailrace.toml"
    file.write_text(f"[agent]\nhealth_port = {free_port('127.0.0.1')}\n")
    ended = CliRunner().invoke(complete(), ["drain", "-c", str(file), "--timeout", "0"])
    assert ended.exit_code == 1
    assert said in ended.output


class Publishing(HealthBoard):
    """Of an agent that leaves nothing unpublished at each look."""

    @property
    def now(self) -> Health:
        self.count(all_published=1)
        return super().now


@pytest.mark.parametrize(
    ("aside", "said"),
    [
        ({"parked_now": 3}, "3 mutations are parked"),
        ({}, "segment 5 is not in Kafka as a whole: quarantined behind 40"),
    ],
)
def test_what_is_set_aside_is_not_in_kafka(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aside: Mapping[str, int], said: str
) -> None:
    """Its volume must not go away."""
    monkeypatch.setattr("tailrace.cli.drain._POLL_SECONDS", 0)
    board = Publishing(ManualClock())
    board.gauge(**aside)
    if not aside:
        board.degrade("segment 5", "quarantined behind 40: wrong checksum; its file is kept in cdc_raw")
    file = tmp_path / "tailrace.toml"
    with HealthServer(board, "127.0.0.1", 0) as agent:
        file.write_text(f"[agent]\nhealth_port = {agent.port}\n")
        ended = CliRunner().invoke(complete(), ["drain", "-c", str(file), "--live-node"])
    assert ended.exit_code == 3
    assert said in ended.output
