"""The compose file runs: its services, their checks of health, and the commands that it and its page name.

Images of others have stand-ins (`stand_ins`); Grafana has none. Times go to the log (`-o log_cli=true`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.deploy.compose import FILE, Compose, command_of, composed, services_of_the_file
from tests.integration.deploy.podman import Podman
from tests.integration.deploy.sandbox import PROGRAMS
from tests.integration.deploy.stand_ins.images import VARIABLES, build_stand_ins
from tests.integration.deploy.tools import require

pytestmark = [pytest.mark.long, pytest.mark.timeout(5400)]

ADDRESS = '{"street":"Mill Lane 1","city":"York"}'

ROWS = [
    ("ada", 1, 1, '{"tea":3}', '["ring twice","call first"]', ADDRESS, '["gift"]', "19.90"),
    ("ada", 2, 1, None, None, None, None, "6.00"),
    ("bob", 1, None, None, None, None, None, None),
]
"""What deploy/demo.cql leaves: its last SELECT."""


@pytest.fixture(scope="module")
def compose(podman: Podman, agent_image: str, stream_image: str, server_image: str) -> Iterator[Compose]:
    require(*PROGRAMS)
    assert {agent_image, stream_image, server_image} == {
        f"localhost/{service['image']}" for service in services_of_the_file().values() if "build" in service
    }
    with composed(podman, build_stand_ins(podman, VARIABLES)) as services:
        yield services


def run_demo(compose: Compose) -> str:
    """What the demo prints. It leaves the same rows each time."""
    compose.start("cassandra", "kafka", "agent", "stream")
    command, *arguments = command_of(FILE, "run --rm demo")[2:]
    return compose.run("--profile", "demo", command, "-T", *arguments)


def rows(compose: Compose) -> list[tuple[Any, ...]]:
    """The stream's table, as the file's head shows how to read it; none where there is no table as yet."""
    command, *arguments = command_of(FILE, "exec stream")
    shown = compose.look(command, "-T", *arguments)
    return [ast.literal_eval(line) for line in shown.splitlines()]


def test_the_demo_is_in_the_streams_database(compose: Compose) -> None:
    assert "(3 rows)" in run_demo(compose)
    compose.wait("stream", lambda: sorted(rows(compose), key=lambda row: row[:2]) == ROWS)
