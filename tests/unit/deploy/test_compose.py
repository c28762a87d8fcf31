from __future__ import annotations

import runpy
import subprocess
import time
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tailrace.local.ports import free_port
from tailrace.ops.health import HealthBoard
from tailrace.ops.server import HealthServer
from tailrace_common.sections.server import ServerSettings
from tailrace_common.sections.stream import METRICS_PORT
from tailrace_common.settings import HEALTH_PORT, Settings, load_settings
from tests.unit.deploy.compose import faults
from tests.unit.deploy.dockerfile import Dockerfile

ROOT = Path(__file__).parents[3]
DOCKERFILE = Dockerfile.read(ROOT / "deploy" / "Dockerfile")
TARGETS = ("agent", "stream", "server")
PORTS = {"agent": HEALTH_PORT, "stream": METRICS_PORT, "server": ServerSettings().port}
PROFILES = {
    "three": {"cassandra-2", "cassandra-3", "agent-2", "agent-3"},
    "monitoring": {"prometheus", "grafana"},
    "server": {"server", "migrate", "postgres"},
    "demo": {"demo"},
}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    parsed: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return parsed


@pytest.fixture(scope="module")
def settings() -> Settings:
    return load_settings(ROOT / "deploy" / "tailrace.toml", {})


@pytest.mark.slow
def test_the_compose_file_has_no_faults(compose: dict[str, Any]) -> None:
    assert list(faults(compose, ROOT)) == []
    always = {name for name, service in compose["services"].items() if "profiles" not in service}
    assert always == {"cassandra", "kafka", "agent", "stream"}
    for profile, services in PROFILES.items():
        assert {
            name for name, service in compose["services"].items() if profile in service.get("profiles", ())
        } == services


def test_the_paths_of_the_settings_are_on_the_shared_volumes(compose: dict[str, Any], settings: Settings) -> None:
    node = yaml.safe_load((ROOT / "deploy" / "cassandra" / "cdc.yaml").read_text())
    assert str(settings.agent.cdc_raw_directory) == node["cdc_raw_directory"]
    assert str(settings.agent.commitlog_directory) == node["commitlog_directory"]
    volume = "cassandra-data:/var/lib/cassandra"
    assert volume in compose["services"]["cassandra"]["volumes"]
    assert volume in compose["services"]["agent"]["volumes"]
    assert settings.agent.cdc_raw_directory.is_relative_to("/var/lib/cassandra")
    assert "agent-data:/var/lib/tailrace" in compose["services"]["agent"]["volumes"]
    assert settings.agent.spool_directory.is_relative_to("/var/lib/tailrace")
    assert "stream-data:/var/lib/tailrace" in compose["services"]["stream"]["volumes"]
    assert settings.stream.checkpoint.startswith("/var/lib/tailrace/")
    assert settings.stream_sink()[1].location.startswith("sqlite:////var/lib/tailrace/")


def test_the_addresses_of_the_settings_are_services(compose: dict[str, Any], settings: Settings) -> None:
    assert set(settings.cluster.contact_points) <= set(compose["services"])
    host, port = settings.kafka.bootstrap_servers.split(":")
    assert f"INTERNAL://{host}:{port}" in compose["services"]["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]


@pytest.mark.parametrize("number", [2, 3])
def test_each_agent_follows_the_node_beside_it(compose: dict[str, Any], number: int) -> None:
    services = compose["services"]
    agent, volume = services[f"agent-{number}"], f"cassandra-{number}-data:/var/lib/cassandra"
    assert volume in agent["volumes"]
    assert volume in services[f"cassandra-{number}"]["volumes"]
    assert agent["environment"]["TAILRACE_CLUSTER__CONTACT_POINTS"] == services[f"cassandra-{number}"]["hostname"]


def test_postgres_is_healthy_by_tcp_alone(compose: dict[str, Any]) -> None:
    """While the image makes the database its server answers on the socket alone, and is stopped again."""
    _, program, *arguments = compose["services"]["postgres"]["healthcheck"]["test"]
    assert (program, arguments[:2]) == ("pg_isready", ["-h", "127.0.0.1"])


def test_monitoring_asks_services_of_the_file(compose: dict[str, Any]) -> None:
    scraped = yaml.safe_load((ROOT / "deploy/monitoring/compose/prometheus.yaml").read_text())
    rules = (ROOT / "deploy/monitoring/rules.yaml").read_text()
    assert [job["job_name"] for job in scraped["scrape_configs"]] == [f"tailrace-{program}" for program in TARGETS]
    for job in scraped["scrape_configs"]:
        assert f'job="{job["job_name"]}"' in rules
        [names] = job["dns_sd_configs"]
        program = job["job_name"].removeprefix("tailrace-")
        assert set(names["names"]) == {name for name in compose["services"] if name.split("-")[0] == program}
        assert names["port"] == PORTS[program]
        assert (job.get("scheme", "http"), job.get("metrics_path", "/metrics")) == ("http", "/metrics")
    [source] = yaml.safe_load((ROOT / "deploy/monitoring/compose/grafana/datasources/prometheus.yaml").read_text())[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"


def test_the_example_for_prometheus_asks_where_the_settings_serve_metrics() -> None:
    scraped = yaml.safe_load((ROOT / "deploy/monitoring/prometheus.yaml").read_text())
    addresses = {job["job_name"]: job["static_configs"][0]["targets"] for job in scraped["scrape_configs"]}
    assert addresses == {f"tailrace-{program}": [f"127.0.0.1:{PORTS[program]}"] for program in TARGETS}


@pytest.mark.parametrize("target", TARGETS)
def test_images_are_pinned_and_not_root(target: str) -> None:
    image = DOCKERFILE.target(target)
    assert DOCKERFILE.arguments()["BASE"] == "python:3.11.14-slim-bookworm"
    assert image.all("FROM")[0] == "${BASE} AS runtime"
    # The ids of user cassandra in the official image, whose files the agent deletes.
    assert (image.arguments()["UID"], image.arguments()["GID"]) == ("999", "999")
    assert image.instructions[-1][0] == "CMD"
    assert image.all("USER") == ["${UID}:${GID}"]  # numbers, which Kubernetes can judge
    assert image.all("HEALTHCHECK")[-1].endswith(f'CMD ["tailrace-healthy", "{target}"]')


def test_the_build_context_holds_what_is_copied() -> None:
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for source in DOCKERFILE.sources():
        assert any(Path(source).is_relative_to(folder) for folder in kept), source
        assert (ROOT / source).exists()


def test_images_hold_compiled_code() -> None:
    runs = DOCKERFILE.target("build").all("RUN")
    compiler = next(place for place, run in enumerate(runs) if "BUILD_PACKAGES" in run)
    wheel = next(place for place, run in enumerate(runs) if "pip wheel" in run)
    assert compiler < wheel
    assert runs[wheel].startswith("TAILRACE_COMPILE=1 ")  # a failure ends the build


def test_streams_and_servers_have_the_packages_of_every_sink() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [installed] = [run for run in DOCKERFILE.target("spark-build").all("RUN") if "/wheels/*.whl)[" in run]
    chosen = set(installed.partition("/wheels/*.whl)[")[2].partition("]")[0].split(","))
    assert {"spark", "server", "registry"} <= chosen
    sinks = {extra for extra in extras if find_spec(f"tailrace_spark.sinks.{extra}")}
    assert sinks | {"mysql"} <= chosen
    assert chosen <= set(extras)
    [agent] = [run for run in DOCKERFILE.target("agent-build").all("RUN") if "/wheels/*.whl)[" in run]
    assert set(agent.partition("/wheels/*.whl)[")[2].partition("]")[0].split(",")) <= set(extras)


def test_health_is_asked_where_the_settings_serve_it() -> None:
    healthy = runpy.run_path(str(ROOT / "deploy" / "images" / "healthy.py"))
    url_of, defaults = healthy["url_of"], load_settings(None, {})
    assert url_of("agent", {}) == f"http://127.0.0.1:{defaults.agent.health_port}/health/ready"
    assert url_of("stream", {}) == f"http://127.0.0.1:{defaults.stream.metrics_port}/health/ready"
    assert url_of("server", {}) == f"http://127.0.0.1:{defaults.server.port}/health"
    everywhere = {"TAILRACE_AGENT__HEALTH_ADDRESS": "0.0.0.0", "TAILRACE_AGENT__HEALTH_PORT": "9000"}  # noqa: S104
    assert load_settings(None, everywhere).agent.health_port == 9000
    assert url_of("agent", everywhere) == "http://127.0.0.1:9000/health/ready"
    secure = {"TAILRACE_SERVER__ADDRESS": "::", "TAILRACE_SERVER__TLS_CERTIFICATE_FILE": "/x"}
    assert url_of("server", secure) == "https://[::1]:8085/health"
    assert healthy["main"](["agnet"]) == 2


def test_health_is_asked_without_a_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker gives its proxies to containers as variables: every container behind one was unhealthy."""
    healthy = runpy.run_path(str(ROOT / "deploy" / "images" / "healthy.py"))
    board = HealthBoard(time.monotonic)
    board.ready(True)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port('127.0.0.1')}")
    with HealthServer(board, "127.0.0.1", 0) as agent:
        monkeypatch.setenv("TAILRACE_AGENT__HEALTH_PORT", str(agent.port))
        assert healthy["main"](["agent"]) == 0


ENTRY_POINT = ROOT / "deploy" / "images" / "spark-entrypoint.sh"


def entry_point(folder: Path, *arguments: str, **environ: str) -> list[str]:
    """The command that the entry point becomes, word by word."""
    (folder / "tini").write_text('#!/bin/sh\nfor word do printf "%s\\n" "$word"; done\n')
    (folder / "tini").chmod(0o755)
    paths = {"PATH": f"{folder}:/usr/bin:/bin", "SPARK_HOME": "/opt/spark", "JAVA_HOME": "/opt/java"}
    done = subprocess.run(
        ["sh", ENTRY_POINT, *arguments],
        env={**paths, **environ},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_the_entry_point_is_tailrace_or_sparks(tmp_path: Path) -> None:
    assert entry_point(tmp_path, "stream", "-c", "a b") == ["-s", "--", "tailrace", "stream", "-c", "a b"]
    driver = entry_point(tmp_path, "driver", "--class", "x", "a b", SPARK_DRIVER_BIND_ADDRESS="10.0.0.1")
    assert driver[:4] == ["-s", "--", "/opt/spark/bin/spark-submit", "--conf"]
    assert driver[-5:] == ["--deploy-mode", "client", "--class", "x", "a b"]
    assert "spark.driver.bindAddress=10.0.0.1" in driver
    variables = ("MEMORY", "ID", "CORES", "POD_IP", "POD_NAME")
    executor = entry_point(
        tmp_path,
        "executor",
        SPARK_JAVA_OPT_0="-Da=b c",
        SPARK_JAVA_OPT_1="-Dd=$e",
        SPARK_DRIVER_URL="spark://x@h:1",
        SPARK_APPLICATION_ID="app",
        SPARK_RESOURCE_PROFILE_ID="0",
        SPARK_EXTRA_CLASSPATH="/more/*",
        **{f"SPARK_EXECUTOR_{name}": name.lower() for name in variables},
    )
    assert executor[:7] == ["-s", "--", "/opt/java/bin/java", "-Da=b c", "-Dd=$e", "-Xmsmemory", "-Xmxmemory"]
    assert executor[executor.index("-cp") + 1] == f"/opt/spark/conf:/opt/spark/jars/*:/more/*:{tmp_path}"
    assert executor[executor.index("--hostname") + 1] == "pod_ip"
    assert executor[executor.index("--podName") + 1] == "pod_name"


YAML = """\
cluster_name: 'Test Cluster'
cdc_enabled: false
# cdc_raw_directory: /var/lib/cassandra/cdc_raw
commitlog_sync: periodic
commitlog_sync_period: 10000ms
seed_provider:
    - class_name: org.apache.cassandra.locator.SimpleSeedProvider
      parameters:
          - seeds: "127.0.0.1:7000"
"""


def test_the_node_gets_its_cdc_settings_once(tmp_path: Path) -> None:
    conf = tmp_path / "cassandra.yaml"
    conf.write_text(YAML)
    script = ROOT / "deploy" / "cassandra" / "with-cdc.sh"
    environ = {"CASSANDRA_CONF": str(tmp_path), "ENTRYPOINT": "/bin/echo", "PATH": "/usr/bin:/bin"}
    for _ in range(2):
        done = subprocess.run(
            ["sh", script, "cassandra", "-f"], env=environ, capture_output=True, text=True, check=True
        )
        assert done.stdout == "cassandra -f\n"
    wanted = yaml.safe_load((script.parent / "cdc.yaml").read_text())
    assert yaml.safe_load(conf.read_text()) == {**yaml.safe_load(YAML), **wanted}
    for key in wanted:
        assert conf.read_text().count(f"\n{key}:") == 1
