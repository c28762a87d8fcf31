"""What the node's own settings mean to the agent and to the check."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tailrace.assembly.node import (
    NodeSettings,
    node_names,
    node_words,
    require_node_directory,
    require_own_directory,
    reverse_name,
    tell_node_settings,
)
from tailrace.cli.checks.cassandra import check_node
from tailrace.ops.health import HealthBoard
from tailrace_common.settings import Settings, load_settings
from tailrace_schemas.errors import ServiceError, SettingsError

ON = NodeSettings({"cdc_enabled": "true", "cdc_on_repair_enabled": "true"})
OFF = NodeSettings({"cdc_enabled": "false"})
REFUSED = NodeSettings(refusal="no SELECT on system_views")
SILENT = NodeSettings()
OLD = NodeSettings(absent=True)
ENABLED = {"cdc_enabled": "true", "cdc_raw_directory": "/var/lib/cassandra/cdc_raw"}
NAMES = {"10.0.0.1": "cassandra-1.example", "10.0.0.2": None}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(None, {"TAILRACE_AGENT__CDC_RAW_DIRECTORY": str(tmp_path)})


def board() -> HealthBoard:
    health = HealthBoard(lambda: 0.0)
    health.ready(True)
    return health


@pytest.mark.parametrize(("node", "cause"), [(OFF, "cdc_enabled"), (REFUSED, "node settings")])
def test_what_keeps_the_agent_from_its_work_is_told_once_and_until_it_is_mended(node: NodeSettings, cause: str) -> None:
    health = board()
    words = tell_node_settings(health, node)
    assert words is not None
    assert words == health.now.degraded[cause]
    assert tell_node_settings(health, node) is None
    assert tell_node_settings(health, SILENT) is None
    assert (list(health.now.degraded), health.now.ready) == ([cause], False), "no answer is no news"
    assert tell_node_settings(health, ON) is None
    assert (health.now.degraded, health.now.ready) == ({}, True)


@pytest.mark.parametrize("node", [ON, SILENT, OLD])
def test_nothing_is_wrong(node: NodeSettings) -> None:
    health = board()
    tell_node_settings(health, node)
    assert (health.now.degraded, health.now.ready) == ({}, True)


def test_a_directory_that_is_made_once_cdc_is_on_is_waited_for(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="cdc_enabled is false on this node, and there is no"):
        require_node_directory(tmp_path / "gone", OFF)
    with pytest.raises(SettingsError, match="cannot list"):
        require_node_directory(tmp_path / "gone", ON)
    require_node_directory(tmp_path, OFF)


@pytest.mark.promise("agent.node-settings")
@pytest.mark.parametrize(
    ("node", "wrong"),
    [
        (ON, set()),
        (OLD, set()),
        (OFF, {"cdc_enabled"}),
        (REFUSED, {"node settings", "cdc_enabled"}),
        (SILENT, {"node settings", "cdc_enabled"}),
        (NodeSettings({"cdc_total_space": "1MiB"}), {"cdc_enabled"}),
    ],
)
def test_no_row_is_left_out_in_silence(node: NodeSettings, wrong: set[str], settings: Settings) -> None:
    rows = {row.name: row for row in check_node(settings, node)}
    assert {name for name, row in rows.items() if not row.ok} == wrong
    assert "cdc_enabled" in rows
    assert all(row.advice for row in rows.values() if not row.ok)


def test_streamed_data_in_the_log_is_named(settings: Settings) -> None:
    (row,) = [row for row in check_node(settings, ON) if row.name == "cdc_on_repair_enabled"]
    assert row.ok
    assert "a join" in row.detail
    assert "cdc_on_repair_enabled: false in cassandra.yaml" in row.advice


def test_what_cannot_be_listed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("gone", "file"):
        with pytest.raises(SettingsError, match=f"agent.cdc_raw_directory: cannot list .*{name}: .*cdc_enabled"):
            require_own_directory(tmp_path / name, {})


def test_what_nothing_can_be_released_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda _, mode: not mode & os.W_OK)  # root may write everywhere
    with pytest.raises(SettingsError, match=r"agent\.cdc_raw_directory: .*Cassandra's user"):
        require_own_directory(tmp_path, {})


def test_an_empty_directory_beside_the_nodes_own(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"agent\.cdc_raw_directory: .*/var/lib/cassandra/cdc_raw"):
        require_own_directory(tmp_path, ENABLED)


@pytest.mark.parametrize("node", [{}, {**ENABLED, "cdc_enabled": "false"}, {"cdc_enabled": "true"}], ids=str)
def test_an_empty_directory_where_nothing_speaks_against_it(tmp_path: Path, node: dict[str, str]) -> None:
    require_own_directory(tmp_path, node)


def test_the_nodes_own_under_any_name(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    require_own_directory(link, {**ENABLED, "cdc_raw_directory": str(tmp_path)})
    (tmp_path / "CommitLog-7-1.log").touch()
    require_own_directory(tmp_path, ENABLED)


def test_each_address_has_the_name_that_is_known() -> None:
    assert node_names(NAMES, NAMES.get, seconds=60) == {"10.0.0.1": "cassandra-1.example"}


def test_a_name_server_that_does_not_answer_holds_nothing_up() -> None:
    over = threading.Event()

    def silent(address: str) -> str | None:
        return NAMES[address] if over.wait(60) else None

    assert node_names(NAMES, silent, seconds=0.01) == {}
    over.set()


def test_what_is_no_address_has_no_name() -> None:
    assert reverse_name("not an address") is None


@pytest.mark.parametrize(
    ("address", "name", "words"),
    [
        ("10.0.0.1", "cassandra-1", "cassandra-1 (10.0.0.1), host id h"),
        ("10.0.0.1", None, "10.0.0.1, host id h"),
        (None, None, "host id h"),
    ],
)
def test_a_node_in_words(address: str | None, name: str | None, words: str) -> None:
    assert node_words("h", address, name) == words
