"""The examples in the pages of sinks do what the pages say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tailrace_common.settings import load_settings
from tailrace_spark.sinks.http.client import signed_headers
from tests.unit.spark.sinks.http.endpoint import Endpoint
from tests.unit.spark.sinks.pages import PAGES, example, run, write_by_page


def test_the_console_prints_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_by_page("console", tmp_path)
    [line] = map(json.loads, capsys.readouterr().out.splitlines())
    assert (line["table"], line["op"], line["key"]) == ("shop.plain", "insert", {"id": 1})


def test_files_are_written_and_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_by_page("files", tmp_path, path=str(tmp_path / "lake"), region=None)
    names = run("files", path=str(tmp_path / "lake"))
    assert capsys.readouterr().out == "insert {'id': 1} {'v': 'a', 'w': None}\n"
    assert getattr(names["table"], "num_rows", None) == 1


def test_delta_tables_are_written_and_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_by_page("delta", tmp_path, path=str(tmp_path / "lake"), region=None)
    run("delta", path=str(tmp_path / "lake"))
    assert capsys.readouterr().out == "insert 1 a\n"


def test_changes_are_posted(tmp_path: Path) -> None:
    endpoint = Endpoint()
    try:
        write_by_page("http", tmp_path, url=endpoint.url)
    finally:
        endpoint.close()
    [change] = endpoint.taken
    assert (change["table"], change["columns"]) == ("shop.plain", {"v": "a"})


@pytest.mark.parametrize("honest", [True, False])
def test_the_receiver_checks_signatures(honest: bool) -> None:
    is_ours: Any = run("http")["is_ours"]
    body = b'{"changes":[]}'
    headers = signed_headers([b"old", b"new"], "id", 1_000, body)
    assert is_ours(headers, body if honest else body + b" ", b"new", 1_010) is honest
    assert is_ours(headers, body, b"old", 9_999) is False


@pytest.mark.parametrize("name", ["console", "files", "delta", "iceberg", "http", "opensearch", "rabbitmq"])
def test_the_settings_of_a_page_are_settings(tmp_path: Path, name: str) -> None:
    """Its table names each one, too."""
    path = tmp_path / "t.toml"
    path.write_text(example(name, "toml"), encoding="utf-8")
    _, section = load_settings(path, {}).stream_sink()
    assert section.type == name
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8").partition("## Settings\n")[2]
    assert {field for field in type(section).model_fields if f"`{field}`" not in text} == {"type"}
