"""What `tailrace stream` says before Spark starts."""

from __future__ import annotations

import json
import os
import signal
from contextlib import nullcontext
from pathlib import Path

import pytest
import typer

from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.cli.stream import require_read, stream
from tailrace_spark.snapshot.progress import Snapshots, State, TableSnapshot


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
    words = r"^sink\.there cannot be opened: Cannot connect to Cassandra at 127\.0\.0\.1:1 \("
    with pytest.raises(ServiceError, match=words) as raised:
        stream(config=config, sink=None, once=True)
    assert "refused" in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_log_tables_with_a_certificate_that_is_not_there(tmp_path: Path) -> None:
    config = tmp_path / "tailrace.toml"
    config.write_text(f'[sink.x]\ntype = "log-tables"\ntls = true\ntls_ca_file = "{tmp_path}/none.pem"\n')
    with pytest.raises(SettingsError, match=r"^sink\.x\.tls_ca_file: .*none\.pem: "):
        stream(config=config, sink=None, once=True)


def _config(folder: Path, checkpoint: Path) -> Path:
    config = folder / "tailrace.toml"
    config.write_text(
        f'[stream]\ncheckpoint = "{checkpoint}"\nmetrics_port = 0\n[sink.there]\nurl = "sqlite:///{folder}/x.db"\n'
    )
    return config


@pytest.mark.promise("stream.once-without-kafka")
@pytest.mark.slow
def test_once_without_kafka_ends_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    config = _config(tmp_path, tmp_path / "checkpoint")
    text = config.read_text().replace("[stream]\n", "[stream]\nonce_wait_seconds = 0.1\n")
    config.write_text(f'[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n{text}')
    with pytest.raises(ServiceError) as raised:
        stream(config=config, sink=None, once=True)
    words = str(raised.value)
    assert "Kafka has not answered for 0.1 s (stream.once_wait_seconds), and `stream --once` ends" in words
    assert "Cannot connect to Kafka at 127.0.0.1:1 " in words
    assert words.endswith("Start Kafka or fix bootstrap.servers.")
    assert raised.value.exit_code == 1


class _Interrupted:
    """A stream that is told to end, and then ends in order, as all do."""

    def __init__(self, *_: object, **__: object) -> None:
        self.snapshots = Snapshots(copies=True)

    def run(self, **_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "once", "said"),
    [
        ("", True, True),
        ('snapshot = "only"\n', False, True),
        ("", False, False),  # it runs on until it is told to end: that is its good end
    ],
)
def test_what_was_to_end_by_itself_and_was_ended_has_not_done_its_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str, once: bool, said: bool
) -> None:
    """A job of Kubernetes counts as complete by exit code 0: of one that was evicted, nobody made another."""
    monkeypatch.setattr("tailrace_spark.cli.stream.SparkOnce", lambda _: nullcontext(lambda: None))
    monkeypatch.setattr("tailrace_spark.cli.stream.await_kafka", lambda *_, **__: None)
    monkeypatch.setattr("tailrace_spark.cli.stream.Stream", _Interrupted)
    config = _config(tmp_path, tmp_path / "checkpoint")
    config.write_text(config.read_text().replace("[stream]\n", f"[stream]\n{settings}"))
    with pytest.raises(ServiceError, match="before it had read all") if said else nullcontext():
        stream(config=config, sink=None, once=once)


@pytest.mark.parametrize("state", State)
def test_snapshots_alone_are_done_once_each_has_ended(state: State) -> None:
    one = Snapshots(copies=True, initial=True, tables=(TableSnapshot(id="1", table="shop.a", asked=0.0, state=state),))
    if state in (State.REFUSED, State.DROPPED):
        with pytest.raises(typer.Exit) as ended:
            require_read(one)
        assert ended.value.exit_code == 3
    else:
        with nullcontext() if state.ended else pytest.raises(ServiceError, match="before it had read all"):
            require_read(one)
