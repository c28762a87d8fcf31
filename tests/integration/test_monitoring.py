"""The alerts as Prometheus judges them: each fires in time, and not before.

Prometheus and promtool are Debian's packages.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.skipif(
        shutil.which("promtool") is None, reason="promtool is not installed: it is in Debian's package prometheus"
    ),
]

MONITORING: Final = Path(__file__).resolve().parents[2] / "deploy" / "monitoring"
RULES: Final = {
    rule["alert"]: rule
    for group in yaml.safe_load((MONITORING / "rules.yaml").read_text())["groups"]
    for rule in group["rules"]
}
HEALTHY: Final = {
    'up{job="tailrace-agent", instance="n1"}': "1x120",
    'up{job="tailrace-stream", instance="s1"}': "1x120",
    'tailrace_ready{instance="n1"}': "1x120",
    'tailrace_problems{instance="n1", kind="kafka"}': "0x120",
    'tailrace_behind_seconds{instance="n1"}': "1x120",
    'tailrace_unacknowledged_losses{instance="n1"}': "0x120",
    'tailrace_parked_now{instance="n1"}': "0x120",
    'tailrace_dead_letters_total{instance="n1"}': "4x120",
    'tailrace_cdc_raw_full_seconds{instance="n1"}': "90000x120",
    'tailrace_cdc_raw_bytes{instance="n1"}': "10x120",
    'tailrace_cdc_raw_limit_bytes{instance="n1"}': "100x120",
    'tailrace_spool_bytes{instance="n1"}': "0x120",
    'tailrace_ring_state{instance="n1", state="covered"}': "1x120",
    'tailrace_stream_blocked{instance="s1"}': "0x120",
    'tailrace_stream_stopped_topics{instance="s1"}': "0x120",
    'tailrace_stream_dead_letters_total{instance="s1"}': "7x120",
    'tailrace_stream_refused_total{instance="s1", table="shop.orders"}': "0x120",
    'tailrace_stream_behind_records{instance="s1", topic="t"}': "500000-1000x120",
    'tailrace_stream_last_commit_timestamp_seconds{instance="s1"}': "0+60x120",
    'up{job="tailrace-server", instance="v1"}': "1x120",
    'tailrace_server_meta_database_up{instance="v1"}': "1x120",
    'tailrace_subscription_state{instance="v1", subscription="shop.orders/a", state="active"}': "1x120",
    'tailrace_subscription_state{instance="v1", subscription="shop.orders/a", state="failing"}': "0x120",
    'tailrace_subscription_unclaimed{instance="v1", subscription="shop.orders/a"}': "0x120",
    'tailrace_subscription_behind_seconds{instance="v1", subscription="shop.orders/a"}': "9x120",
    'tailrace_subscription_dead_letters{instance="v1", subscription="shop.orders/a"}': "0x120",
    'tailrace_subscription_waiting{instance="v1", subscription="shop.orders/a"}': "0x120",
}
"""Two hours of samples, one a minute, in promtool's notation."""
FAULTS: Final = {
    "TailraceAgentDown": {'up{job="tailrace-agent", instance="n1"}': "0x120"},
    "TailraceAgentNotReady": {'tailrace_ready{instance="n1"}': "0x120"},
    "TailraceAgentProblems": {'tailrace_problems{instance="n1", kind="kafka"}': "2x120"},
    "TailraceAgentBehind": {'tailrace_behind_seconds{instance="n1"}': "61x120"},
    "TailraceLosses": {'tailrace_unacknowledged_losses{instance="n1"}': "1x120"},
    "TailraceParked": {'tailrace_parked_now{instance="n1"}': "3x120"},
    "TailraceDeadLetters": {'tailrace_dead_letters_total{instance="n1"}': "0+1x120"},
    "TailraceCdcRawFillsUp": {'tailrace_cdc_raw_full_seconds{instance="n1"}': "3599x120"},
    "TailraceCdcRawNearlyFull": {'tailrace_cdc_raw_bytes{instance="n1"}': "91x120"},
    "TailraceSpoolInUse": {'tailrace_spool_bytes{instance="n1"}': "1x120"},
    "TailraceRingNotCovered": {'tailrace_ring_state{instance="n1", state="covered"}': "0x120"},
    "TailraceStreamDown": {'up{job="tailrace-stream", instance="s1"}': "0x120"},
    "TailraceStreamBlocked": {'tailrace_stream_blocked{instance="s1"}': "1x120"},
    "TailraceStreamStoppedTopics": {'tailrace_stream_stopped_topics{instance="s1"}': "1x120"},
    "TailraceStreamDeadLetters": {'tailrace_stream_dead_letters_total{instance="s1"}': "0+1x120"},
    "TailraceStreamRefusesTable": {
        'tailrace_stream_refused_total{instance="s1", table="shop.orders"}': "0+1x120",
    },
    "TailraceStreamLags": {'tailrace_stream_behind_records{instance="s1", topic="t"}': "200000+1000x120"},
    "TailraceStreamSilent": {'tailrace_stream_last_commit_timestamp_seconds{instance="s1"}': "0x120"},
    "TailraceServerDown": {'up{job="tailrace-server", instance="v1"}': "0x120"},
    "TailraceMetaDatabaseDown": {'tailrace_server_meta_database_up{instance="v1"}': "0x120"},
    "TailraceSubscriptionFailing": {
        'tailrace_subscription_state{instance="v1", subscription="shop.orders/a", state="active"}': "0x120",
        'tailrace_subscription_state{instance="v1", subscription="shop.orders/a", state="failing"}': "1x120",
    },
    "TailraceSubscriptionUnclaimed": {
        'tailrace_subscription_unclaimed{instance="v1", subscription="shop.orders/a"}': "1x120",
    },
    "TailraceSubscriptionLags": {
        'tailrace_subscription_behind_seconds{instance="v1", subscription="shop.orders/a"}': "901x120",
    },
    "TailraceSubscriptionDeadLetters": {
        'tailrace_subscription_dead_letters{instance="v1", subscription="shop.orders/a"}': "1x120",
    },
    "TailraceSubscriptionWaits": {
        'tailrace_subscription_waiting{instance="v1", subscription="shop.orders/a"}': "1x120",
    },
}


BEGINNINGS: Final = {
    "TailraceStreamRefusesTable": {
        'tailrace_stream_refused_total{instance="s1", table="shop.orders"}': "_x100 1x20",
    },
    "TailraceStreamSilent": {
        'tailrace_stream_last_commit_timestamp_seconds{instance="s1"}': "0x120",
        'tailrace_stream_behind_records{instance="s1", topic="t"}': "_x120",
    },
}
"""Faults of a stream that has just begun, whose series are not there before."""


def promtool(tmp_path: Path, series: dict[str, str], minute: int) -> set[str]:
    """The alerts that fire at a minute: promtool is told that none does, and names those that do."""
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": 'sum by (alertname) (ALERTS{alertstate="firing"})',
                    "eval_time": f"{minute}m",
                    "exp_samples": [],
                }
            ],
        }
    ]
    file = tmp_path / "tests.yaml"
    rules = str(MONITORING / "rules.yaml")
    file.write_text(yaml.safe_dump({"rule_files": [rules], "evaluation_interval": "1m", "tests": tests}))
    result = subprocess.run(
        ["promtool", "test", "rules", file], capture_output=True, text=True, timeout=600, check=False
    )
    output = result.stdout + result.stderr
    assert result.returncode == 0 or "got:" in output, output
    return {name for name in RULES if f'alertname="{name}"' in output}


def test_rules_are_valid() -> None:
    command = ["promtool", "check", "rules", str(MONITORING / "rules.yaml")]
    assert f"{len(RULES)} rules found" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("settings", ["prometheus.yaml", "compose/prometheus.yaml"])
def test_settings_of_prometheus_are_valid(settings: str, tmp_path: Path) -> None:
    """With the rules beside them, as docker-compose.yml mounts them."""
    for file in (settings, "rules.yaml"):
        shutil.copy(MONITORING / file, tmp_path)
    command = ["promtool", "check", "config", str(tmp_path / "prometheus.yaml")]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    assert f"{len(RULES)} rules found" in said.stdout


def test_every_alert_has_its_fault_here() -> None:
    assert FAULTS.keys() == RULES.keys()


def test_nothing_fires_on_healthy_servers(tmp_path: Path) -> None:
    assert promtool(tmp_path, HEALTHY, 110) == set()


@pytest.mark.parametrize("name", FAULTS)
def test_an_alert_fires_when_its_fault_has_lasted(name: str, tmp_path: Path) -> None:
    """It alone fires at the end; one that waits does not a minute before its time."""
    series = HEALTHY | FAULTS[name]
    assert promtool(tmp_path, series, 110) == {name}
    waits = RULES[name].get("for")
    if waits is not None and name not in ("TailraceStreamLags", "TailraceStreamSilent"):
        minutes = 60 * int(waits[:-1]) if waits.endswith("h") else int(waits[:-1])
        assert promtool(tmp_path, series, minutes - 1) == set()
        assert promtool(tmp_path, series, minutes + 1) == {name}


@pytest.mark.parametrize("name", BEGINNINGS)
def test_an_alert_fires_of_a_stream_that_has_just_begun(name: str, tmp_path: Path) -> None:
    series = HEALTHY | BEGINNINGS[name]
    assert promtool(tmp_path, series, 90 if "Silent" in name else 110) == {name}
