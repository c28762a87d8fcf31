"""The compose file runs: its services, their checks of health, and the commands that it and its page name.

Images of others have stand-ins (`stand_ins`); Grafana has none. Times go to the log (`-o log_cli=true`). Services that
run are left to the next test.
"""

from __future__ import annotations

import ast
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.deploy.compose import FILE, Compose, command_of, composed, services_of_the_file
from tests.integration.deploy.podman import ROOT, Podman
from tests.integration.deploy.sandbox import PROGRAMS
from tests.integration.deploy.stand_ins.images import VARIABLES, build_stand_ins
from tests.integration.deploy.tools import require

pytestmark = [pytest.mark.long, pytest.mark.timeout(5400)]

_LOG = logging.getLogger("tailrace.test")
SIGTERM_CODE = 128 + 15
"""Java's exit code after SIGTERM."""
PAGE = ROOT / "docs" / "deployment" / "containers.md"
API = "http://127.0.0.1:8085/v1/subscriptions"
PROMETHEUS = "http://127.0.0.1:9090/api/v1"
COUNTER = 'tailrace_changes_total{topic="tailrace.shop.orders"}'
ADDRESS = '{"street":"Mill Lane 1","city":"York"}'

ROWS = [
    ("ada", 1, 1, '{"tea":3}', '["ring twice","call first"]', ADDRESS, '["gift"]', "19.90"),
    ("ada", 2, 1, None, None, None, None, "6.00"),
    ("bob", 1, None, None, None, None, None, None),
]
"""What deploy/demo.cql leaves: its last SELECT."""


@pytest.fixture(scope="module")
def compose(podman: Podman, agent_image: str, stream_image: str, server_image: str) -> Iterator[Compose]:
    require(*PROGRAMS, "curl")
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
    _, service, *command = command_of(FILE, "exec stream")
    return [ast.literal_eval(line) for line in compose.look(service, *command).splitlines()]


def test_the_demo_is_in_the_streams_database(compose: Compose) -> None:
    assert "(3 rows)" in run_demo(compose)
    compose.wait("stream", lambda: sorted(rows(compose), key=lambda row: row[:2]) == ROWS)


def test_a_subscription_is_made_over_http(compose: Compose) -> None:
    run_demo(compose)
    compose.start("server")
    assert compose.state("migrate")["ExitCode"] == 0
    _, service, *command = command_of(PAGE, "exec server")
    key = compose.execute(service, *command).strip()
    authorised = ("-H", f"Authorization: Bearer {key}")
    body = {"table": "shop.orders", "name": "mine", "target": "warehouse"}
    subscription = json.loads(compose.ask(*authorised, "--json", json.dumps(body), API))
    assert subscription["reference"] == "shop.orders/mine"
    compose.wait("server", lambda: subscribed(compose) == [row[:2] for row in ROWS])
    assert json.loads(compose.ask(*authorised, f"{API}/shop.orders/mine"))["state"] == "active"


def subscribed(compose: Compose) -> list[tuple[str, int]]:
    """The keys in the table of the subscription; none where there is no table as yet."""
    query = "SELECT customer, number FROM shop_orders ORDER BY 1, 2"
    lines = compose.look("postgres", "psql", "-U", "tailrace", "-Atc", query).splitlines()
    return [(customer, int(number)) for customer, number in (line.split("|") for line in lines)]


def test_prometheus_has_its_targets_and_rules(compose: Compose) -> None:
    compose.start("agent", "stream", "prometheus")
    # Another one is there where a test before left a server.
    up = {"tailrace-agent": "up", "tailrace-stream": "up"}
    compose.wait("prometheus", lambda: targets(compose).items() >= up.items())
    compose.wait("prometheus", lambda: set(rules(compose).values()) == {"ok"})
    assert {"TailraceAgentDown", "TailraceStreamDown"} <= rules(compose).keys()


def targets(compose: Compose) -> dict[str, str]:
    """Job -> health of its one target."""
    answer = json.loads(compose.ask(f"{PROMETHEUS}/targets?state=active"))
    return {target["labels"]["job"]: target["health"] for target in answer["data"]["activeTargets"]}


def rules(compose: Compose) -> dict[str, str]:
    """Name -> health of each alert."""
    answer = json.loads(compose.ask(f"{PROMETHEUS}/rules"))
    return {rule["name"]: rule["health"] for group in answer["data"]["groups"] for rule in group["rules"]}


def test_a_second_start_goes_on(compose: Compose) -> None:
    """All end within the file's grace periods, or they would be killed (137)."""
    run_demo(compose)
    compose.start("server")
    running = {*compose.started} - {"migrate"}
    _LOG.info("stopped in %.1f s", compose.stop())
    codes = {service: compose.state(service)["ExitCode"] for service in running}
    assert (codes["agent"], codes["stream"], codes["server"]) == (0, 0, 0), codes
    assert set(codes.values()) <= {0, SIGTERM_CODE}, codes
    compose.start("stream")
    compose.execute("cassandra", "cqlsh", "-e", "INSERT INTO shop.orders (customer, number) VALUES ('later', 1)")
    compose.wait("stream", lambda: ("later", 1) in {row[:2] for row in rows(compose)})


def test_three_nodes_come_out_of_one_stream(compose: Compose) -> None:
    run_demo(compose)
    compose.start("agent-2", "agent-3")
    assert "(2 rows)" in compose.execute("cassandra", "cqlsh", "-e", "SELECT peer FROM system.peers_v2")
    keys = {(f"customer {number}", number) for number in range(60)}
    inserts = (f"INSERT INTO shop.orders (customer, number) VALUES ('{name}', {number});" for name, number in keys)
    compose.execute("cassandra", "cqlsh", "-e", " ".join(inserts))
    compose.wait("stream", lambda: keys <= {row[:2] for row in rows(compose)})
    # One replica has each row, so each of the agents has published a part of them.
    published = [changes_of(compose, agent) for agent in ("agent", "agent-2", "agent-3")]
    assert all(published), published


def changes_of(compose: Compose, agent: str) -> float:
    """How many changes of the demo's table an agent has published."""
    script = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8083/metrics').read().decode())"
    lines = compose.execute(agent, "python3", "-c", script).splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(COUNTER))
