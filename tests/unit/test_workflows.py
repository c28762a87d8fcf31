"""The files that run and keep the project elsewhere: workflows, Renovate, owners. What they name exists here."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = frozenset(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def jobs(workflow: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(workflow.read_text(encoding="utf-8"))
    by_name: dict[str, Any] = content["jobs"]
    return by_name


def commands(workflow: Path) -> list[str]:
    return [step["run"] for job in jobs(workflow).values() for step in job["steps"] if "run" in step]


def test_there_are_workflows() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "nightly.yml", "release.yml"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_target_of_make_exists(workflow: Path) -> None:
    targets = {target for command in commands(workflow) for target in re.findall(r"make ([a-z-]+)", command)}
    assert targets
    assert targets <= TARGETS


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_job_has_an_end_and_no_more_rights_than_it_needs(workflow: Path) -> None:
    assert yaml.safe_load(workflow.read_text(encoding="utf-8"))["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in jobs(workflow).values())


def test_ci_runs_what_is_run_here() -> None:
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert "make test" in script
    assert "make test" in commands(ROOT / ".github/workflows/ci.yml")


def test_the_pythons_of_ci_are_those_of_the_classifiers() -> None:
    classified = [
        name.rpartition(" ")[2]
        for name in PYPROJECT["project"]["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", name)
    ]
    ci = jobs(ROOT / ".github/workflows/ci.yml")
    assert ci["test"]["strategy"]["matrix"]["python"] == classified
    setup = next(step for step in ci["installs"]["steps"] if "setup-python" in step.get("uses", ""))
    assert set(classified) <= set(setup["with"]["python-version"].split())


def test_renovate_names_packages_that_are_used() -> None:
    project = PYPROJECT["project"]
    extras = [need for needs in project["optional-dependencies"].values() for need in needs]
    used = {re.split(r"[\[<>=!~ ]", need)[0] for need in (*project["dependencies"], *extras)}
    rules = json.loads((ROOT / "renovate.json").read_text(encoding="utf-8"))["packageRules"]
    assert {name for rule in rules for name in rule.get("matchPackageNames", ())} <= used


def test_owners_are_teams_and_paths_that_exist() -> None:
    for line in (ROOT / "CODEOWNERS").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            path, *owners = line.split()
            assert owners
            assert all(owner.startswith("@tailrace/") for owner in owners)
            assert path == "*" or (ROOT / path.strip("/")).exists()


def test_wheels_are_built_for_what_the_recipe_says() -> None:
    recipe = PYPROJECT["tool"]["cibuildwheel"]
    assert recipe["environment"]["TAILRACE_COMPILE"] == "1"
    assert recipe["build"] == ["cp311-*", "cp312-*", "cp313-*", "cp314-*"]
    entries = jobs(ROOT / ".github/workflows/release.yml")["wheels"]["strategy"]["matrix"]["include"]
    assert [entry["architecture"] for entry in entries] == ["x86_64", "aarch64"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_digest(workflow: Path) -> None:
    uses = re.findall(r"uses: (.*)", workflow.read_text(encoding="utf-8"))
    assert [action for action in uses if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v[\d.]+", action)] == []


def test_a_release_pushes_the_images_that_chart_and_compose_name() -> None:
    dockerfile = (ROOT / "deploy/Dockerfile").read_text(encoding="utf-8")
    built = dict(re.findall(r"^# *docker build .*--target ([a-z]+) -t (\S+) \.$", dockerfile, re.MULTILINE))
    values = yaml.safe_load((ROOT / "deploy/helm/tailrace/values.yaml").read_text(encoding="utf-8"))["images"]
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    composed = {service["image"] for service in services.values() if "build" in service}
    assert built == {name: values[name] for name in built}
    assert composed == set(built.values())
    release = "\n".join(commands(ROOT / ".github/workflows/release.yml"))
    assert "version=${GITHUB_REF_NAME#v}" in release
    assert 'tailrace-$name:$version"' in release
    assert set(built.values()) == {f"tailrace-{name}" for name in built}
    chart = yaml.safe_load((ROOT / "deploy/helm/tailrace/Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == PYPROJECT["project"]["version"]  # as `images.tag` has it by default, without a v
