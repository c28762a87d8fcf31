"""Health as a value, and as HTTP shows it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from tailrace.ops.health import HealthBoard
from tailrace.ops.server import HealthServer
from tailrace.position import Position
from tailrace.testing import ManualClock
from tailrace_schemas.errors import SettingsError


@pytest.fixture
def clock() -> ManualClock:
    """Time that stands still."""
    return ManualClock()


@pytest.fixture
def board(clock: ManualClock) -> HealthBoard:
    """A new board."""
    return HealthBoard(clock)


@pytest.fixture
def server(board: HealthBoard) -> Iterator[HealthServer]:
    """On a free port."""
    with HealthServer(board, "127.0.0.1", 0) as server:
        yield server


def get(server: HealthServer, path: str) -> tuple[int, object]:
    """Status code and JSON body."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=10) as answer:
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


def test_a_snapshot_never_changes(board: HealthBoard) -> None:
    """It is a value."""
    before = board.now
    board.committed(Position(1, 2, 3))
    board.ready(True)
    assert (before.committed, before.ready) == (None, False)


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
    board.committed(Position(1, 77, 4096))
    board.degrade("held", "stopped at 1/77:4100: table id x is in no known schema")
    board.count(changes=7)
    assert get(server, "/status?verbose") == (404, {"error": "paths: /health/live, /health/ready, /status"})
    assert get(server, "/status") == (
        200,
        {
            "live": True,
            "ready": True,
            "degraded": {"held": "stopped at 1/77:4100: table id x is in no known schema"},
            "committed": {"epoch": 1, "segment": 77, "offset": 4096},
            "counts": {"changes": 7},
        },
    )


def test_a_port_in_use_is_a_wrong_setting(board: HealthBoard, server: HealthServer) -> None:
    """Named by its setting."""
    with pytest.raises(SettingsError, match=r"agent\.health_address 127\.0\.0\.1"):
        HealthServer(board, "127.0.0.1", server.port)
