"""The images do their work: read-only, not as root, on a real node, a real Kafka and a real Spark.

Minutes each, of which the builds take most. Sizes and times until ready go to the log (`-o log_cli=true`).
"""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.local import LocalCassandra, LocalKafka
from tailrace.local.ports import free_port
from tests.integration.agents import AgentProcess, cql, create_keyspace, ints, published, settings_for
from tests.integration.deploy.image import ELSEWHERE, USER, answers, open_to_the_image, wait
from tests.integration.deploy.podman import ROOT, Podman
from tests.integration.feed import Feed
from tests.services.spark_cluster import SparkCluster, compiled_code, java_module_options
from tests.support.waiting import until
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

pytestmark = [pytest.mark.long, pytest.mark.timeout(5400)]

_LOG = logging.getLogger("tailrace.test")
ROWS = 200
PLAIN = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="plain")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A directory of the images' user, for /var/lib/tailrace."""
    directory = tmp_path / "work"
    directory.mkdir()
    os.chown(directory, USER, USER)
    return directory


@pytest.fixture
def rows(kafka: LocalKafka, prefix: str) -> Iterator[None]:
    """Rows of one table, in both partitions of its topic."""
    feed = Feed(kafka.bootstrap, prefix)
    feed.announce()
    feed.publish([Log(PLAIN).insert((number,), (), 5_000_000, v=f"v{number}") for number in range(ROWS)])
    yield
    feed.close()


def mounts(*pairs: tuple[Path, str]) -> tuple[str, ...]:
    """Options for directories and files of this machine."""
    return tuple(word for source, target in pairs for word in ("-v", f"{source}:{target}"))


@pytest.mark.parametrize(("image", "python"), [("agent_image", "Python 3."), ("newest_agent_image", "Python 3.14.")])
def test_the_agent_publishes_a_nodes_changes(
    podman: Podman,
    image: str,
    python: str,
    kafka: LocalKafka,
    prefix: str,
    tmp_path: Path,
    work: Path,
    request: pytest.FixtureRequest,
) -> None:
    agent_image = request.getfixturevalue(image)
    with LocalCassandra(tmp_path / "node") as node, cql(node) as session:
        data = node.directory / "data"
        open_to_the_image(node)
        create_keyspace(session, "shop")
        session.execute("CREATE TABLE shop.t (k int PRIMARY KEY, v text) WITH cdc = true")
        settings = settings_for(node, kafka, prefix)
        settings["agent"]["spool_directory"] = "/var/lib/tailrace/spool"
        port, file = free_port("127.0.0.1"), AgentProcess(tmp_path, settings).settings
        environ = (f"TAILRACE_AGENT__HEALTH_PORT={port}", "TAILRACE_AGENT__HEALTH_ADDRESS=0.0.0.0")
        options = mounts((data, str(data)), (work, "/var/lib/tailrace"), (file, "/etc/tailrace/tailrace.toml:ro"))
        options += tuple(word for pair in environ for word in ("-e", pair))
        began = time.monotonic()
        with podman.container(agent_image, options=options) as agent:
            wait(agent, lambda: answers(f"http://{ELSEWHERE}:{port}/health/ready"))
            _LOG.info("agent: ready %.1f s after its start", time.monotonic() - began)
            assert agent.execute("tailrace-healthy", "agent") == ""
            assert agent.execute("id", "-u").strip() == str(USER)
            assert agent.execute("/opt/tailrace/bin/python3", "-V").startswith(python)
            for number in range(ROWS):
                session.execute(f"INSERT INTO shop.t (k, v) VALUES ({number}, 'v')")
            wait(agent, lambda: len(ints(published(kafka, prefix, f"{prefix}.shop.t"))) == ROWS)
            assert agent.stop() == 0, agent.log()
            assert "pure Python" not in agent.log()


@pytest.mark.usefixtures("rows")
def test_an_executor_of_the_image_works_for_a_driver_elsewhere(
    podman: Podman, stream_image: str, kafka: LocalKafka, prefix: str, tmp_path: Path, work: Path
) -> None:
    """By the arguments and variables with which Kubernetes' Spark starts executors. The master has no worker at all."""
    driver_port, file, log = free_port("127.0.0.1"), tmp_path / "tailrace.toml", tmp_path / "driver.log"
    with SparkCluster(workers=0) as cluster:
        settings = cluster.driver_settings()
        settings |= {"spark.driver.port": str(driver_port), "spark.pyspark.python": "/opt/tailrace/bin/python3"}
        settings["spark.cores.max"] = "1"
        settings["spark.scheduler.minRegisteredResourcesRatio"] = "0"
        file.write_text(
            f'[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n[topics]\nprefix = "{prefix}"\n'
            f'[stream]\nsnapshot = "never"\ncheckpoint = "{tmp_path}/checkpoint"\n'
            f'[sink.local]\nurl = "sqlite:///{tmp_path}/sink.db"\n'
            "[stream.spark]\n" + "".join(f'"{name}" = "{value}"\n' for name, value in settings.items())
        )
        environ = {
            "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@127.0.0.1:{driver_port}",
            "SPARK_EXECUTOR_ID": "1",
            "SPARK_EXECUTOR_CORES": "1",
            "SPARK_EXECUTOR_MEMORY": "512m",
            "SPARK_APPLICATION_ID": "app",
            "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
            "SPARK_EXECUTOR_POD_NAME": "executor-1",
            "SPARK_RESOURCE_PROFILE_ID": "0",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        java_options = ("-XX:TieredStopAtLevel=1", *java_module_options())
        environ |= {f"SPARK_JAVA_OPT_{number}": option for number, option in enumerate(java_options)}
        options = mounts((work, "/var/lib/tailrace"))
        options += tuple(word for name, value in environ.items() for word in ("-e", f"{name}={value}"))
        command = [sys.executable, "-m", "tests.integration.cluster_driver", "shop.plain", str(file)]
        paths = f"{compiled_code()}{os.pathsep}{ROOT}"
        with log.open("w") as errors:
            driver = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, "PYTHONPATH": paths}
            )
        try:
            until(
                lambda: _listens(driver_port),
                "the driver",
                300,
                over=lambda: driver.poll() is not None,
                state=log.read_text,
            )
            with podman.container(stream_image, "executor", options=options) as executor:
                shown, _ = driver.communicate(timeout=900)
                assert driver.returncode == 0, log.read_text()[-3000:] + executor.log()[-3000:]
        finally:
            driver.kill()
    changes = [json.loads(line) for line in shown.splitlines()]
    assert sorted(change["value"] for change in changes) == sorted(f"v{number}" for number in range(ROWS))
    [worker] = {json.dumps(change["worker"]) for change in changes}
    about = json.loads(worker)
    assert about["user"] == USER
    assert about["compiled"] > 50
    assert about["merge"].startswith("/opt/tailrace/lib/")


def _listens(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return bool(probe.connect_ex(("127.0.0.1", port)) == 0)
