"""`tailrace init`: what it writes, whom it asks, and what it leaves alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailrace.cli.init import Beginning, asked
from tailrace.cli.main import complete
from tailrace.local.process import directory_lock
from tailrace_common.settings import load_settings
from tailrace_schemas.errors import SettingsError
from tailrace_spark.sinks.sql.settings import SqlSinkSettings


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_piped_it_asks_nothing_and_writes_nine_lines(tmp_path: Path) -> None:
    answer = CliRunner().invoke(complete(), ["init"])
    assert (answer.exit_code, answer.stdout) == (0, "")
    assert answer.stderr.endswith("lines written; next: tailrace check\n")
    lines = (tmp_path / "tailrace.toml").read_text().splitlines()
    assert len([line for line in lines if not line.startswith("spool_directory")]) == 9
    settings = load_settings(tmp_path / "tailrace.toml", {})
    assert settings.kafka.bootstrap_servers == "127.0.0.1:9092"
    assert (settings.cluster.contact_points, settings.cluster.port) == (("127.0.0.1",), 9042)
    assert settings.stream_sink() == ("local", SqlSinkSettings())


def test_options_say_all_of_it(tmp_path: Path) -> None:
    given = [
        "--cassandra",
        "[::1]:9142",
        "--cdc-raw",
        "/data/cdc_raw",
        "--kafka",
        "a:1,b:2",
        "--sink",
        "sqlite:///x.db",
    ]
    answer = CliRunner().invoke(complete(), ["init", "-o", "my.toml", *given])
    assert answer.stderr.endswith("next: tailrace check -c my.toml\n")
    settings = load_settings(tmp_path / "my.toml", {})
    assert (settings.cluster.contact_points, settings.cluster.port) == (("::1",), 9142)
    assert settings.agent.cdc_raw_directory == Path("/data/cdc_raw")
    assert settings.kafka.bootstrap_servers == "a:1,b:2"
    assert settings.sink["local"].location == "sqlite:///x.db"


def test_the_addresses_of_local_services_that_run_are_taken(tmp_path: Path) -> None:
    directory = tmp_path / ".tailrace" / "local"
    directory.mkdir(parents=True)
    services = [
        {"service": "cassandra", "address": "127.0.0.1:5001", "cdc_raw": "/x/cdc_raw"},
        {"service": "kafka", "address": "127.0.0.1:5002"},
    ]
    whole = [{"state": "running", "pid": 1, "log": "", **service} for service in services]
    (directory / "state.json").write_text(json.dumps({"pid": 1, "services": whole}))
    assert CliRunner().invoke(complete(), ["init", "-o", "stopped.toml"]).exit_code == 0
    assert load_settings(tmp_path / "stopped.toml", {}).cluster.port == 9042
    locks = [directory_lock(directory / name, name, seconds=0.2) for name in ("cassandra", "kafka")]
    try:
        answer = CliRunner().invoke(complete(), ["init"])
    finally:
        for lock in locks:
            lock.close()
    assert "taking the services of `tailrace local up` in .tailrace/local" in answer.stderr
    settings = load_settings(tmp_path / "tailrace.toml", {})
    assert (settings.cluster.port, settings.kafka.bootstrap_servers) == (5001, "127.0.0.1:5002")
    assert settings.agent.cdc_raw_directory == Path("/x/cdc_raw")


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    answer = CliRunner().invoke(complete(), ["init", "-o", str(tmp_path), "--force"])
    assert (answer.exit_code, answer.stderr) == (2, f"tailrace: {tmp_path}: cannot be written: Is a directory\n")


def test_a_file_that_exists_is_kept_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "tailrace.toml").write_text("# mine\n")
    answer = CliRunner().invoke(complete(), ["init"])
    assert answer.exit_code == 2
    assert answer.stderr == "tailrace: tailrace.toml exists: give --output FILE, or --force to replace it\n"
    assert (tmp_path / "tailrace.toml").read_text() == "# mine\n"
    assert CliRunner().invoke(complete(), ["init", "--force"]).exit_code == 0
    assert load_settings(tmp_path / "tailrace.toml", {}).cluster.port == 9042


def test_only_this_user_reads_it(tmp_path: Path) -> None:
    answer = CliRunner().invoke(complete(), ["init", "--sink", "postgresql://u:hunter2@h/d"])
    assert "hunter2" not in answer.output
    assert (tmp_path / "tailrace.toml").stat().st_mode & 0o777 == 0o600


def test_an_address_without_a_port_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"localhost: Cassandra's address has the form HOST:PORT"):
        Beginning(cassandra="localhost").render(None)


def test_a_person_is_asked_for_what_is_not_given() -> None:
    questions: list[tuple[str, str]] = []

    def ask(words: str, proposed: str) -> str:
        questions.append((words, proposed))
        return "k:1" if "Kafka" in words else proposed

    beginning = asked(Beginning(), {"cassandra", "sink"}, ask)
    assert questions == [
        ("its cdc_raw directory", "/var/lib/cassandra/cdc_raw"),
        ("Kafka's bootstrap servers", "127.0.0.1:9092"),
    ]
    assert beginning == Beginning(kafka="k:1")
