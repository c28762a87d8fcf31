"""Alerts, runbooks and dashboards: every query asks for metrics that exist, and every alert has its runbook."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
MONITORING = ROOT / "deploy" / "monitoring"
RUNBOOKS = "docs/runbooks.md"
PARTS = ("\nLook at:\n", "\nDo:\n")
RULES: dict[str, Any] = yaml.safe_load((MONITORING / "rules.yaml").read_text())
ALERTS = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
DASHBOARDS = sorted((MONITORING / "dashboards").glob("*.json"))


def documented() -> dict[str, set[str]]:
    """The labels of each metric of docs/metrics.md, which other tests hold against the code."""
    rows = re.findall(
        r"^\| `((?:tailrace|process)_\w+)(?:\{([\w,]+)\})?` \| (\w+) \|", (ROOT / "docs/metrics.md").read_text(), re.M
    )
    metrics = {name: {*labels.split(","), "instance", "job"} for name, labels, _ in rows}
    for name, labels, kind in rows:
        if kind == "histogram":
            metrics[f"{name}_bucket"] = {*labels.split(","), "instance", "job", "le"}
    return metrics


METRICS = documented()


def runbooks() -> dict[str, str]:
    """The section of each alert."""
    _, *sections = (ROOT / RUNBOOKS).read_text().split("\n## ")
    return {name: text for name, _, text in (section.partition("\n") for section in sections)}


def queries(board: Path) -> list[str]:
    panels = json.loads(board.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def require_known(expression: str) -> None:
    """Each metric is documented, and no label is asked for that none of the query's metrics has."""
    names = re.findall(r"\b(?:tailrace|process)_\w+", expression)
    assert set(names) <= METRICS.keys(), expression
    labels = set().union(*(METRICS[name] for name in names))
    grouped = [
        label.strip() for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in group.split(",")
    ]
    selected = re.findall(r"[{,]\s*(\w+)\s*=", expression)
    if names:
        assert {*grouped, *selected} <= labels, expression


def test_the_check_knows_a_wrong_metric_and_a_wrong_label() -> None:
    for expression in ("tailrace_reddy == 0", "sum by (colour) (tailrace_ready)", 'tailrace_ready{kind="x"}'):
        with pytest.raises(AssertionError):
            require_known(expression)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_asks_for_metrics_that_exist(name: str) -> None:
    require_known(ALERTS[name]["expr"])


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_a_severity_and_a_runbook(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"]["runbook"] == f"{RUNBOOKS}#{name.lower()}"
    assert all(part in runbooks()[name] for part in PARTS)


def test_every_runbook_is_of_an_alert() -> None:
    assert list(runbooks()) == list(ALERTS)


@pytest.mark.parametrize("board", DASHBOARDS, ids=lambda board: board.stem)
def test_a_dashboard_asks_for_metrics_that_exist(board: Path) -> None:
    asked = queries(board)
    assert len(asked) >= 12
    for expression in asked:
        require_known(expression)


def test_panels_do_not_overlap() -> None:
    for board in DASHBOARDS:
        places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in json.loads(board.read_text())["panels"]]
        assert len(set(places)) == len(places)
