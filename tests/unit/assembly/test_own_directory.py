"""Which directories an agent refuses before it fences another one of its host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tailrace.assembly.own_directory import require_own_directory
from tailrace_schemas.errors import SettingsError

ENABLED = {"cdc_enabled": "true", "cdc_raw_directory": "/var/lib/cassandra/cdc_raw"}


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
