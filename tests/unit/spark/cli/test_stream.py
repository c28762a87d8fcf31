"""What `tailrace stream` says before Spark starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.cli.stream import stream


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("sqlite:////nonexist/dir/x.db", "/nonexist/dir is no directory"),
        ("postgresql://user:hunter2@127.0.0.1:1/nothing", "refused"),
    ],
)
def test_a_sink_that_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, reason: str, once: bool
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # were Spark started, it would fail of this
    config = tmp_path / "tailrace.toml"
    config.write_text(f"[sink.there]\nurl = {json.dumps(url)}\n", encoding="utf-8")
    with pytest.raises(ServiceError, match=r"^sink\.there\.url cannot be opened: ") as raised:
        stream(config=config, sink=None, once=once)
    assert reason in str(raised.value)
    assert "hunter2" not in str(raised.value)
    assert raised.value.exit_code == 1


def test_log_tables_of_a_cluster_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    config = tmp_path / "tailrace.toml"
    config.write_text('[sink.there]\ntype = "log-tables"\nport = 1\nusername = "u"\npassword = "hunter2"\n')
    with pytest.raises(ServiceError, match=r"^sink\.there cannot be opened: Cassandra at 127\.0\.0\.1:1: ") as raised:
        stream(config=config, sink=None, once=True)
    assert "refused" in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_log_tables_with_a_certificate_that_is_not_there(tmp_path: Path) -> None:
    config = tmp_path / "tailrace.toml"
    config.write_text(f'[sink.x]\ntype = "log-tables"\ntls = true\ntls_ca_file = "{tmp_path}/none.pem"\n')
    with pytest.raises(SettingsError, match=r"^sink\.x\.tls_\.\.\.: "):
        stream(config=config, sink=None, once=True)
