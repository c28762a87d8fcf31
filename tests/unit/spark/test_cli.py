"""What `tailrace stream` says before Spark starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace_schemas.errors import ServiceError
from tailrace_spark.cli import stream


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
