"""The chart's sidecar in a pod beside a real node: `podman play kube` runs it from the chart's manifest.

A pod of podman has the machine's network and no fields of Kubernetes: the test names the node's address, and runs the
command of `preStop` itself. All else is the chart's: image, user, volumes, settings, read-only root.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from cassandra.concurrent import execute_concurrent_with_args

from tailrace.local import CassandraSettings, LocalCassandra, LocalKafka
from tailrace.local.ports import free_port
from tests.integration.agents import cql, create_keyspace, ints, published
from tests.integration.deploy.chart import rendered
from tests.integration.deploy.image import ELSEWHERE, USER, answers, open_to_the_image, wait
from tests.integration.deploy.podman import Podman
from tests.integration.deploy.tools import require

pytestmark = [pytest.mark.long, pytest.mark.timeout(5400)]

ROWS = 2000
NOT_OF_PODMAN = ("ports", "startupProbe", "livenessProbe", "readinessProbe")
"""On the machine's network podman maps no ports. Probes are timers of systemd in it, which may not run here: the test
asks their URL itself."""
VALUES = """\
images: {{registry: localhost, tag: latest}}
settings: |
  [cluster]
  port = {port}
  [kafka]
  "bootstrap.servers" = "{bootstrap}"
  [topics]
  prefix = "{prefix}"
agent: {{mode: sidecar, healthPort: {health}}}
"""


def pod_of(objects: list[dict[str, Any]], node: LocalCassandra, health: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pod of a node's sidecar, and the ConfigMap with its settings."""
    maps = {document["metadata"]["name"]: document for document in objects if document["kind"] == "ConfigMap"}
    spec = yaml.safe_load(maps["t-tailrace-agent-sidecar"]["data"]["statefulset.yaml"])["spec"]["template"]["spec"]
    [agent] = spec["containers"]
    assert agent["startupProbe"]["httpGet"] == {"path": "/health/live", "port": health}
    environ = [_of_this_machine(variable, node.address) for variable in agent["env"]]
    container = {name: value for name, value in agent.items() if name not in NOT_OF_PODMAN} | {"env": environ}
    data = {"name": "server-data", "hostPath": {"path": str(node.directory / "data"), "type": "Directory"}}
    pod = {**spec, "hostNetwork": True, "containers": [container], "volumes": [data, *spec["volumes"]]}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"node-{uuid4().hex[:8]}"}, "spec": pod}
    return manifest, maps["t-tailrace-settings"]


def _of_this_machine(variable: Mapping[str, Any], address: str) -> dict[str, Any]:
    if "valueFrom" in variable:
        assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
        return {"name": variable["name"], "value": address}
    return {**variable, "value": variable["value"].replace("$(NODE_ADDRESS)", address)}


@pytest.mark.usefixtures("agent_image")
def test_the_sidecar_of_the_chart_publishes_and_drains(
    podman: Podman, kafka: LocalKafka, prefix: str, tmp_path: Path
) -> None:
    require("helm", "catatonit")
    health = free_port("127.0.0.1")
    node = LocalCassandra(tmp_path / "node", CassandraSettings(jmx_port=0))
    with node, cql(node) as session:
        open_to_the_image(node)
        create_keyspace(session, "shop")
        session.execute("CREATE TABLE shop.t (k int PRIMARY KEY, v text) WITH cdc = true")
        values = VALUES.format(port=node.port, bootstrap=kafka.bootstrap, prefix=prefix, health=health)
        pod, settings = pod_of(rendered(tmp_path, values), node, health)
        [prepares_stop] = [
            container["lifecycle"]["preStop"]["exec"]["command"] for container in pod["spec"]["containers"]
        ]
        with podman.pod(tmp_path, pod, settings) as containers:
            [agent] = containers
            wait(agent, lambda: answers(f"http://{ELSEWHERE}:{health}/health/ready"))
            assert agent.execute("id", "-u").strip() == str(USER)
            insert = session.prepare("INSERT INTO shop.t (k, v) VALUES (?, ?)")
            execute_concurrent_with_args(session, insert, [(number, "v" * 500) for number in range(ROWS)])
            node.nodetool("drain")
            agent.execute(*prepares_stop)
            keys = ints(published(kafka, prefix, f"{prefix}.shop.t"))
            assert (len(keys), set(keys.values())) == (ROWS, {1}), agent.log()[-6000:]
            assert agent.stop() == 0, agent.log()
            assert _left(node) == []


def _left(node: LocalCassandra) -> list[Path]:
    """What the agent's spool has of the node's log."""
    return sorted((node.directory / "data" / "tailrace-spool").rglob("CommitLog-*.log"))
