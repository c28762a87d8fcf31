"""The registry of sinks: what it lists, and what fails before any data moves."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path

import pytest

from tailrace_common.sections.sink import SinkSettings
from tailrace_common.settings import Settings, load_settings
from tailrace_common.settings.sinks import SINK_TYPES
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.cli.sinks import sinks
from tailrace_spark.sinks import sink_type
from tailrace_spark.sinks.registry import SINKS, open_sink, setting_of

ROOT = Path(__file__).parents[4]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]


def test_the_registry_has_the_types_that_settings_know() -> None:
    assert {name: kind.settings for name, kind in SINKS.items()} == dict(SINK_TYPES)


@pytest.mark.parametrize("name", SINKS)
def test_every_type_says_what_it_is(name: str) -> None:
    kind = SINKS[name]
    assert kind.guarantee.endswith(".")
    assert set(kind.install.removeprefix("pip install 'tailrace[").removesuffix("]'").split(",")) <= set(EXTRAS)
    document = (ROOT / kind.document).read_text(encoding="utf-8")
    assert name in document
    assert kind.where in ("", *kind.settings.model_fields)
    assert setting_of("x", kind.settings.model_construct(type=name)) == f"sink.x{'.' if kind.where else ''}{kind.where}"


@pytest.mark.slow
def test_what_types_need_is_imported_when_one_is_opened_and_not_before() -> None:
    """In an interpreter of its own, since this one has long imported all of it."""
    # The bare installation has confluent-kafka: settings ask librdkafka about its properties.
    packages = {package for kind in SINKS.values() for package in kind.packages} - {"confluent_kafka"}
    program = (
        "import sys, tailrace_spark.sinks.registry, tailrace_spark.cli.sinks as c; c.sinks(always_json=True); "
        f"sys.exit(', '.join(package for package in {packages!r} if package in sys.modules) or None)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["type"] for line in done.stdout.splitlines()] == list(SINKS)


def test_piped_the_list_is_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    sinks()
    lines = {line["type"]: line for line in map(json.loads, capsys.readouterr().out.splitlines())}
    assert lines["sql"] == {
        "type": "sql",
        "kind": "merging",
        "guarantee": SINKS["sql"].guarantee,
        "installed": True,
        "install": "pip install 'tailrace[spark]'",
        "document": "docs/sinks/sql.md",
    }


def test_on_a_terminal_the_list_is_a_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sink_type, "find_spec", lambda package: None if package == "cassandra" else object())
    sinks()
    lines = capsys.readouterr().out.splitlines()
    [sql] = [line for line in lines if "│ sql" in line]
    [log] = [line for line in lines if "│ log-tables" in line]
    assert "yes" in sql
    assert "pip install" in log


def test_the_index_of_the_pages_has_every_type() -> None:
    text = (ROOT / "docs/sinks/README.md").read_text(encoding="utf-8")
    for kind in SINKS.values():
        assert f"| `{kind.name}` | {kind.kind} |" in text
        assert f"({kind.document.removeprefix('docs/sinks/').replace('docs/', '../')})" in text


@pytest.mark.promise("sinks.half-configured")
def test_a_missing_package_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_type, "find_spec", lambda _: None)
    with pytest.raises(SettingsError) as raised:
        open_sink("there", Settings().sink["local"], "p")
    assert str(raised.value) == (
        "sink.there: type = \"sql\" needs sqlalchemy, not installed: pip install 'tailrace[spark]'"
    )


@pytest.mark.parametrize("kind", ['"hudi"', "5"])
def test_an_unknown_type_names_all_there_are(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t.toml"
    path.write_text(f"[sink.x]\ntype = {kind}\n", encoding="utf-8")
    with pytest.raises(SettingsError) as raised:
        load_settings(path, {})
    assert all(f'"{name}"' in str(raised.value) for name in SINKS)
    assert "`tailrace sinks`" in str(raised.value)


def stored_at(kind: str, path: object) -> SinkSettings:
    return Settings.model_validate({"sink": {"x": {"type": kind, "path": str(path)}}}).sink["x"]


@pytest.mark.parametrize("kind", ["files", "delta", "iceberg"])
def test_a_root_that_cannot_be_written_is_told_at_the_start(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_text("")
    sink, words = (
        open_sink("x", stored_at(kind, tmp_path / "file/below"), "p"),
        "is no directory that this user may write",
    )
    with closing(sink), pytest.raises(ServiceError, match=words):
        sink.reach()


@pytest.mark.parametrize("kind", ["files", "delta"])
def test_other_places_are_refused(kind: str) -> None:
    with pytest.raises(SettingsError, match="a directory or begins with s3://"):
        open_sink("x", stored_at(kind, "gs://bucket/x"), "p")
