"""Where settings are looked for, and that the file which is used is said."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest

from tailrace_common.cli.options import PLACES, VARIABLE, settings_file, settings_of
from tailrace_schemas.errors import SettingsError


def test_the_places_in_order(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    here, system, named = (tmp_path / name for name in ("here.toml", "system.toml", "named.toml"))
    environ, places = {VARIABLE: str(named)}, (here, system)
    assert settings_file({}, places) is None
    assert settings_file(environ, places) == named
    assert caplog.text == ""
    system.touch()
    assert settings_file(environ, places) == system
    assert f"{VARIABLE}={named} is ignored: {system} exists and takes precedence" in caplog.text
    here.touch()
    assert settings_file({}, places) == here


def test_the_places_are_this_directory_and_the_systems() -> None:
    assert (Path("tailrace.toml"), Path("/etc/tailrace/tailrace.toml")) == PLACES


def test_the_file_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(VARIABLE, raising=False)
    caplog.set_level(logging.INFO, "tailrace.settings")
    settings_of(None)
    assert "settings: the defaults, for there is no tailrace.toml, no /etc/tailrace/tailrace.toml and no" in caplog.text
    (tmp_path / "tailrace.toml").write_text("[cluster]\nport = 5\n")
    assert settings_of(None).cluster.port == 5
    assert caplog.messages[-1] == "settings: tailrace.toml"


def test_a_file_in_a_closed_directory_is_an_error_and_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/etc/tailrace is open to the agent's group alone, as docs/deployment/systemd.md makes it."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    closed = tmp_path / "closed" / "tailrace.toml"
    with monkeypatch.context() as patch:  # root may do everything
        patch.setattr(Path, "stat", refuse)
        assert settings_file({}, (closed,)) == closed
    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", refuse)
        patch.setattr(Path, "read_text", refuse)
        with pytest.raises(SettingsError, match=r"tailrace\.toml: cannot be read: Permission denied"):
            settings_of(None)


def test_a_named_file_that_is_missing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "gone.toml"))
    with pytest.raises(SettingsError, match=r"gone\.toml: no such file"):
        settings_of(None)
