from __future__ import annotations

import copy
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tailrace_common.settings import Settings, load_settings
from tests.unit.deploy.compose import command_faults, faults
from tests.unit.deploy.dockerfile import Dockerfile

ROOT = Path(__file__).parents[3]
DOCKERFILES = sorted((ROOT / "deploy").glob("*.Dockerfile"))


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    parsed: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return parsed


@pytest.fixture(scope="module")
def settings() -> Settings:
    return load_settings(ROOT / "deploy" / "tailrace.toml", {})


def test_the_compose_file_has_no_faults(compose: dict[str, Any]) -> None:
    assert list(faults(compose, ROOT)) == []
    assert set(compose["services"]) == {"cassandra", "kafka", "agent", "stream", "demo"}


Break = Callable[[dict[str, Any]], Any]
BROKEN: list[tuple[str, Break, str]] = [
    ("no such service", lambda s: s["agent"]["depends_on"].update(kafak={"condition": "service_healthy"}), "kafak"),
    ("no health check", lambda s: s["kafka"].pop("healthcheck"), "kafka: has no health check"),
    ("no such file", lambda s: s["demo"].update(volumes=["./deploy/other.cql:/x:ro"]), "other.cql does not exist"),
    ("no such volume", lambda s: s["stream"]["volumes"].append("more:/more"), "more is used and not declared"),
    ("no such Dockerfile", lambda s: s["agent"]["build"].update(dockerfile="deploy/a"), "deploy/a does not exist"),
    ("unpinned image", lambda s: s["kafka"].update(image="apache/kafka:latest"), "not a pinned official image"),
    ("no such command", lambda s: s["agent"].update(command=["agnet", "-c", "/etc/tailrace/tailrace.toml"]), "agnet"),
    ("no such option", lambda s: s["stream"]["command"].append("--fast"), "--fast"),
    ("no such setting", lambda s: s["agent"]["environment"].update(TAILRACE_AGENT__HEALTHPORT="1"), "health_port?"),
    ("no such value", lambda s: s["agent"]["environment"].update(TAILRACE_AGENT__HEALTH_PORT="x"), "HEALTH_PORT"),
    ("no such variable", lambda s: s["agent"]["environment"].update(TAILRACE_CASH="/x"), "TAILRACE_CASH"),
    ("no such format", lambda s: s["agent"]["environment"].update(TAILRACE_LOG_FORMAT="xml"), "may not be xml"),
    ("settings not mounted", lambda s: s["stream"]["volumes"].pop(), "is not mounted"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "change", "fault"), BROKEN, ids=[name for name, _, _ in BROKEN])
def test_a_broken_compose_file_is_told(name: str, change: Break, fault: str, compose: dict[str, Any]) -> None:
    broken = copy.deepcopy(compose)
    for service in broken["services"].values():  # anchors share their values
        service.update({key: copy.deepcopy(value) for key, value in service.items()})
    change(broken["services"])
    assert fault in "\n".join(faults(broken, ROOT)), name


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
    assert compose["services"]["stream"]["healthcheck"]["test"][-1] == f"{settings.stream.checkpoint}/commits"


def test_the_addresses_of_the_settings_are_services(compose: dict[str, Any], settings: Settings) -> None:
    assert set(settings.cluster.contact_points) <= set(compose["services"])
    host, port = settings.kafka.bootstrap_servers.split(":")
    assert f"INTERNAL://{host}:{port}" in compose["services"]["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_images_are_pinned_multi_stage_and_not_root(path: Path) -> None:
    image = Dockerfile.read(path)
    assert image.arguments()["BASE"] == "python:3.11.14-slim-bookworm"
    assert image.all("FROM") == ["${BASE} AS build", "${BASE}"]
    assert image.all("USER") == ["tailrace"]
    # The ids of user cassandra in the official image, whose files the agent deletes.
    assert (image.arguments()["UID"], image.arguments()["GID"]) == ("999", "999")


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_the_build_context_holds_what_is_copied(path: Path) -> None:
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for source in Dockerfile.read(path).sources():
        assert source in kept
        assert (ROOT / source).exists()


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_images_hold_compiled_code(path: Path) -> None:
    runs = Dockerfile.read(path).all("RUN")
    compiler = next(place for place, run in enumerate(runs) if "gcc" in run)
    installation = next(place for place, run in enumerate(runs) if "pip install" in run)
    assert compiler < installation
    assert runs[installation].startswith("TAILRACE_COMPILE=1 ")  # a failure ends the build


def test_a_wrong_command_line_is_told() -> None:
    assert list(command_faults(["tailrace", "check", "-c", "x.toml"])) == []
    assert list(command_faults(["tailrace", "check", "--nothing"])) != []
    assert list(command_faults(["tailrac", "check"])) == ["tailrac is not tailrace"]


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
