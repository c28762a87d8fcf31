"""The Helm chart, as far as it can be judged without Helm: settings, command lines, the user, secrets."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tailrace_common.settings import load_settings
from tests.unit.deploy.compose import command_faults

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "deploy" / "helm" / "tailrace"
TEMPLATES = sorted((CHART / "templates").iterdir())
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
_VARIABLE = re.compile(r"\{name: (TAILRACE_\w+), value: (.+)\}$", re.MULTILINE)


def variables() -> dict[str, str]:
    """What templates set, with a value that fits where a template computes it."""
    pairs = [pair for template in TEMPLATES for pair in _VARIABLE.findall(template.read_text())]
    computed = {"PORT": "8000", "CONTACT_POINTS": "10.0.0.1", "MEMORY": "1g"}
    values = {}
    for name, value in pairs:
        fitting = next((example for end, example in computed.items() if name.endswith(end)), f"/x/{name}")
        values[name] = fitting if "{{" in value or "$(" in value else value.strip('"')
    return values


def test_variables_of_the_templates_are_settings() -> None:
    environ = variables()
    assert len(environ) >= 14
    environ["TAILRACE_SERVER__URL_FILE"] = str(ROOT / "LICENSE")  # it is read: any file will do
    settings = load_settings(None, environ)
    assert settings.agent.health_address == settings.stream.metrics_address == settings.server.address == "0.0.0.0"  # noqa: S104
    assert settings.cluster.contact_points == ("10.0.0.1",)
    assert settings.stream.spark.reveal()["spark.driver.memory"] == "1g"


@pytest.mark.slow
def test_command_lines_of_the_templates_parse() -> None:
    text = "\n".join(template.read_text() for template in TEMPLATES)
    lines = re.findall(r"(?:args|command): \[((?:tailrace, )?(?:agent|server|drain)[^\]]*)\]", text)
    assert len(lines) == 4
    for line in lines:
        words = [re.sub(r"\{\{.*\}\}", "1", word.strip()) for word in line.split(",")]
        assert list(command_faults(["tailrace", *(word for word in words if word != "tailrace")])) == []
    assert 'list "stream" "-c" "/etc/tailrace/tailrace.toml" "--sink"' in text
    assert list(command_faults(["tailrace", "stream", "-c", "x", "--sink", "x"])) == []


def test_values_have_a_schema_that_knows_each_of_them() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(VALUES) | {"global"} == set(schema["properties"])
    for section in ("agent", "stream", "server", "images", "networkPolicy", "monitoring", "podDisruptionBudget"):
        assert set(VALUES[section]) == set(schema["properties"][section]["properties"]), section


def test_names_of_volumes_are_those_that_kubernetes_takes() -> None:
    """At most 63 letters, digits and hyphens: a dot, as objects may have, makes a pod that no API server takes."""
    properties = json.loads((CHART / "values.schema.json").read_text())["properties"]
    secret = properties["secrets"]["items"]["properties"]["name"]["pattern"]
    volume = properties["agent"]["properties"]["dataVolume"]["pattern"]
    helpers = (CHART / "templates" / "_helpers.tpl").read_text()
    [prefix] = set(re.findall(r'"(tailrace-secret-)%s"', helpers))
    for pattern, longest in ((secret, 63 - len(prefix)), (volume, 63)):
        assert re.search(pattern, "kafka-1")
        assert re.search(pattern, "a" * longest)
        assert not re.search(pattern, "a" * (longest + 1))
        assert not re.search(pattern, "kafka.prod")


def test_the_values_fit_images_and_settings(tmp_path: Path) -> None:
    settings = tmp_path / "tailrace.toml"
    settings.write_text(VALUES["settings"])
    defaults = load_settings(settings, {})
    assert VALUES["agent"]["healthPort"] == defaults.agent.health_port
    assert VALUES["stream"]["metricsPort"] == defaults.stream.metrics_port
    assert VALUES["server"]["port"] == defaults.server.port
    for program in ("agent", "stream", "server"):
        assert (VALUES[program]["user"], VALUES[program]["group"]) == (999, 999)
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == version[1]


def test_what_restarts_a_process_asks_the_process_alone() -> None:
    """Not whether a database or Kafka answers: their outage would restart all that they serve."""
    probes = re.findall(r'"live" "([^"]+)" "ready" "([^"]+)"', "\n".join(path.read_text() for path in TEMPLATES))
    assert sorted(probes) == [("/health", "/health/ready"), *[("/health/live", "/health/ready")] * 2]


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_secrets_come_from_mounts_alone(template: Path) -> None:
    assert "secretKeyRef" not in template.read_text()  # a variable is in every process listing and crash report
    assert "envFrom" not in template.read_text()


def test_rules_and_dashboards_are_those_of_monitoring() -> None:
    assert (CHART / "files" / "rules.yaml").resolve() == ROOT / "deploy" / "monitoring" / "rules.yaml"
    assert (CHART / "files" / "dashboards").resolve() == ROOT / "deploy" / "monitoring" / "dashboards"
