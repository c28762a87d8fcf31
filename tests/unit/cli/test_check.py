"""`tailrace check`: each thing that can be wrong is named, with what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailrace.cli.check import ENTRY_POINTS, slow_words, sources, timed
from tailrace.cli.checks.cassandra import check_cassandra, check_latency
from tailrace.cli.checks.directories import check_directories
from tailrace.cli.checks.kafka import check_kafka, check_registry
from tailrace.cli.main import OWN, command_line, complete
from tailrace.local.ports import free_port
from tailrace_common.cli.checks import Check
from tailrace_common.settings import AgentSettings, Settings, load_settings
from tailrace_schemas.errors import SettingsError

HOST = "127.0.0.1"


def environ(**given: str | Path | int) -> dict[str, str]:
    return {f"TAILRACE_{name}": str(value) for name, value in given.items()}


def directories(given: dict[str, str]) -> list[Check]:
    """The checks of directories, without those of segments and of the spool."""
    others = {"segment", "spool_directory", "spool disk"}
    return [check for check in check_directories(load_settings(None, given)) if check.name not in others]


def test_a_directory_that_is_there(tmp_path: Path) -> None:
    (check,) = directories(environ(AGENT__CDC_RAW_DIRECTORY=tmp_path))
    assert (check.name, check.ok, check.advice) == ("cdc_raw_directory", True, "")


def test_a_directory_that_is_not(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    (check,) = check_directories(load_settings(None, environ(AGENT__CDC_RAW_DIRECTORY=gone)))
    assert not check.ok
    assert str(gone) in check.detail
    assert "cdc_enabled" in check.advice


def test_a_commit_log_that_cannot_be_linked_from(tmp_path: Path) -> None:
    for log, ok in ((tmp_path, True), (tmp_path / "gone", False), (Path("/proc"), False)):
        given = environ(AGENT__CDC_RAW_DIRECTORY=tmp_path, AGENT__COMMITLOG_DIRECTORY=log)
        _, check = directories(given)
        assert (check.name, check.ok) == ("commitlog_directory", ok), log


@pytest.mark.parametrize(
    ("right", "refused"), [(os.W_OK, "write {}"), (os.R_OK, "read {}"), (os.W_OK | os.R_OK, "read or write {}")]
)
def test_a_directory_of_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: int, refused: str
) -> None:
    monkeypatch.setattr(os, "access", lambda _, mode: not mode & right)  # root may do everything
    (check,) = directories(environ(AGENT__CDC_RAW_DIRECTORY=tmp_path))
    assert not check.ok
    assert check.detail == f"this user may not {refused.format(tmp_path)}"
    assert "Cassandra's user" in check.advice


def test_a_directory_behind_one_that_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is there cannot be seen: no word of cassandra.yaml, and no trace of the program."""
    closed = tmp_path / "closed"
    closed.mkdir()
    monkeypatch.setattr(os, "access", lambda path, _: path != closed)
    raw, log = closed / "raw", closed / "log"
    [check] = directories(environ(AGENT__CDC_RAW_DIRECTORY=raw))
    assert (check.name, check.ok, check.detail) == ("cdc_raw_directory", False, f"this user may not enter {closed}")
    assert "Cassandra's user" in check.advice
    _, check = directories(environ(AGENT__CDC_RAW_DIRECTORY=tmp_path, AGENT__COMMITLOG_DIRECTORY=log))
    assert (check.name, check.ok, check.detail) == ("commitlog_directory", False, f"this user may not enter {closed}")


def test_keys_of_encrypted_segments(tmp_path: Path) -> None:
    digits = "ab" * 16
    for key, ok, detail in ((digits, True, "one for every alias"), (digits[1:], False, "not hexadecimal digits")):
        given = environ(AGENT__CDC_RAW_DIRECTORY=tmp_path, AGENT__SEGMENT_KEY=key)
        _, check = directories(given)
        assert (check.name, check.ok) == ("segment keys", ok)
        assert detail in check.detail
        assert key not in check.detail


def test_where_segments_go_that_leave_cdc_raw(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place, ok in ((tmp_path / "new" / "one", True), (tmp_path / "file" / "one", False)):
        given = environ(
            AGENT__CDC_RAW_DIRECTORY=tmp_path / "raw",
            AGENT__SPOOL_DIRECTORY=place,
            AGENT__ARCHIVE_DIRECTORY=place,
            AGENT__ON_RELEASE="archive",
        )
        (tmp_path / "raw").mkdir(exist_ok=True)
        rows = {row.name: row for row in check_directories(load_settings(None, given))}
        spool, archive = rows["spool_directory"], rows["archive_directory"]
        assert (spool.ok, archive.ok, "spool disk" in rows) == (ok, ok, ok)
        assert ("file is not a directory" in spool.detail) is not ok
        assert not (tmp_path / "new").exists()
    held = environ(AGENT__CDC_RAW_DIRECTORY=tmp_path / "raw", AGENT__ON_PRESSURE="hold")
    assert [row.name for row in check_directories(load_settings(None, held))] == ["cdc_raw_directory", "segment"]


@pytest.mark.slow
def test_services_that_do_not_answer() -> None:
    settings = load_settings(
        None,
        environ(
            CLUSTER__PORT=free_port(HOST),
            CLUSTER__CONNECT_TIMEOUT_SECONDS=2,
            KAFKA__BOOTSTRAP_SERVERS=f"127.0.0.1:{free_port(HOST)}",
        ),
    )
    (cassandra,) = check_cassandra(settings)
    assert (cassandra.name, cassandra.ok) == ("cassandra", False)
    assert f"127.0.0.1:{settings.cluster.port}" in cassandra.detail
    (kafka,) = check_kafka(settings, timeout=1)
    assert (kafka.name, kafka.ok) == ("kafka", False)
    assert "Connection refused" in kafka.detail


def test_a_registry_is_looked_at_where_there_is_one() -> None:
    assert list(check_registry(load_settings(None, {}))) == []
    url = f"http://127.0.0.1:{free_port(HOST)}"
    given = environ(
        SCHEMAS__STORE="registry", SCHEMAS__REGISTRY__URL=url, SCHEMAS__REGISTRY__BASIC_AUTH_USER_INFO="u:geheim"
    )
    (check,) = check_registry(load_settings(None, given))
    assert (check.name, check.ok) == ("registry", False)
    assert url in check.detail
    assert "geheim" not in check.detail


def test_properties_that_make_no_client_together() -> None:
    """Single names and values are refused when the settings are read; that a file is missing shows here."""
    given = environ(KAFKA__SECURITY_PROTOCOL="SSL", KAFKA__SSL_CA_LOCATION="/nowhere/ca.pem")
    (kafka,) = check_kafka(load_settings(None, given))
    assert not kafka.ok
    assert "ssl.ca.location failed" in kafka.detail


@pytest.mark.slow
def test_one_sink_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(f'[sink.a]\nurl = "sqlite:////none/a.db"\n[sink.b]\nurl = "sqlite:///{tmp_path}/b.db"\n')
    answer = CliRunner().invoke(complete(), ["check", "-c", str(path), "--only", "stream", "--sink", "b"])
    names = [json.loads(line)["name"] for line in answer.stdout.splitlines()]
    assert (answer.exit_code, names) == (0, ["java", "sink b", "checkpoint", "existing rows"])
    answer = CliRunner().invoke(complete(), ["check", "-c", str(path), "--sink", "c"])
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert answer.stderr == "tailrace: --sink c: there is no [sink.c]; the sinks are: a, b\n"


@pytest.mark.slow
def test_cassandra_down_is_said_by_the_check_alone(tmp_path: Path) -> None:
    """Not by the driver's own log above it."""
    path = tmp_path / "t.toml"
    path.write_text(f"[cluster]\nport = {free_port(HOST)}\nconnect_timeout_seconds = 2\n", encoding="utf-8")
    program = "from tailrace.cli.main import run; run()"
    command = [sys.executable, "-c", program, "check", "-c", str(path), "--only", "cassandra"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    line = json.loads(done.stdout)
    assert (line["name"], bool(line["advice"])) == ("cassandra", True)
    assert (done.returncode, done.stderr) == (1, "1 of 1 checks failed\n")


@pytest.mark.parametrize("options", [["--only", "stream"], ["--sink", "local", "--only", "stream"]])
def test_what_is_asked_for_and_cannot_be_looked_at_has_not_passed(
    monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    """A machine without Spark said that all 0 checks passed."""
    points = [EntryPoint("stream", "tailrace_nowhere.check:check", ENTRY_POINTS)]
    monkeypatch.setattr("tailrace.cli.check.entry_points", lambda **_: points)
    answer = CliRunner().invoke(command_line(OWN), ["check", *options])
    assert answer.exit_code == 2
    assert "stream is not checked: it needs tailrace_nowhere" in answer.output


def test_a_sink_that_cannot_be_looked_at_has_not_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("stream", "tailrace_nowhere.check:check", ENTRY_POINTS)]
    monkeypatch.setattr("tailrace.cli.check.entry_points", lambda **_: points)
    assert "stream" not in sources(())
    with pytest.raises(SettingsError, match="stream is not checked"):
        sources((), sinks=True)


def test_an_unknown_part_is_wrong_usage() -> None:
    answer = CliRunner().invoke(complete(), ["check", "--only", "kafak"])
    assert answer.exit_code == 2
    assert "the parts are directories, cassandra, kafka, registry, code, stream" in answer.stderr


@pytest.mark.parametrize(
    ("node", "early", "words", "advice"),
    [
        ({"commitlog_sync": "periodic", "commitlog_sync_period": "10000ms"}, False, "wait for 5 s", "agent.early"),
        ({"commitlog_sync": "periodic", "commitlog_sync_period_in_ms": "10000"}, False, "wait for 5 s", "lower"),
        ({"commitlog_sync": "periodic", "commitlog_sync_period": "200ms"}, False, "wait for 0.1 s", ""),
        ({"commitlog_sync": "periodic", "commitlog_sync_period": "10s"}, True, "durable = false", ""),
    ],
)
def test_the_wait_for_the_flush_is_told_and_both_cures(
    node: dict[str, str], early: bool, words: str, advice: str
) -> None:
    """Where the flush is rare."""
    (check,) = check_latency(AgentSettings(early=early), node)
    assert words in check.detail
    assert (advice in check.advice, bool(advice)) == (True, bool(check.advice))


def test_nothing_is_said_of_a_flush_that_is_not_periodic_or_not_known() -> None:
    assert list(check_latency(AgentSettings(), {"commitlog_sync": "batch", "commitlog_sync_period": "10s"})) == []
    assert list(check_latency(AgentSettings(), {})) == []


@pytest.mark.promise("commands.check")
def test_what_is_slow_is_named() -> None:
    """By the row that took long; one that failed says why by itself."""

    def source(_settings: Settings) -> Iterator[Check]:
        yield Check("quick", True, "")
        yield Check("late", True, "")
        yield Check("away", False, "")

    times = iter([0.0, 0.5, 0.5, 3.5, 3.5, 9.0, 9.0])
    rows = list(timed([source], load_settings(None, {}), times.__next__))
    assert [(row.name, seconds) for row, seconds in rows] == [("quick", 0.5), ("late", 3.0), ("away", 5.5)]
    assert slow_words(rows).startswith("slow: late (3.0 s). ")
    assert slow_words(rows[:1]) == ""
