"""The examples in the pages of sinks do what the pages say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tailrace_common.settings import load_settings
from tailrace_spark.sinks.http.signing import signed_headers
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import PLAIN, Topic
from tests.unit.spark.sinks.http.endpoint import Endpoint

PAGES = Path(__file__).parents[4] / "docs/sinks"


def example(name: str, language: str = "python", number: int = 0) -> str:
    """A block of a page in a language, counted from 0."""
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    return str(re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)[number])


def run(name: str, number: int = 0, /, **given: object) -> dict[str, object]:
    """Run a page's example of a number; `pieces` and what else is given are there. What it left behind."""
    log = Log(PLAIN)
    known: dict[str, object] = {"pieces": [Topic().piece(log.insert((1,), (), 1_760_000_000_000_000, v="a"))], **given}
    exec(compile(example(name, number=number), f"docs/sinks/{name}.md", "exec"), known)  # noqa: S102 - it is ours
    return known


def test_the_console_prints_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    run("console")
    [line] = map(json.loads, capsys.readouterr().out.splitlines())
    assert (line["table"], line["op"], line["key"]) == ("shop.plain", "insert", {"id": 1})


def test_files_are_written_and_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = run("files", path=str(tmp_path))
    assert capsys.readouterr().out == "0 insert\n"
    assert getattr(known["table"], "num_rows", None) == 1


def test_delta_tables_are_written_and_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("delta", path=str(tmp_path))
    assert capsys.readouterr().out == "insert {'id': 1} {'v': 'a'}\n"


def test_changes_are_posted(tmp_path: Path) -> None:
    endpoint = Endpoint()
    try:
        run("http", url=endpoint.url, directory=tmp_path)
    finally:
        endpoint.close()
    [change] = endpoint.taken
    assert (change["table"], change["columns"]) == ("shop.plain", {"v": "a"})


@pytest.mark.parametrize("honest", [True, False])
def test_the_receiver_checks_signatures(honest: bool) -> None:
    """The second Python block of the page."""
    text = (PAGES / "http.md").read_text(encoding="utf-8")
    known: dict[str, Any] = {}
    exec(compile(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[1], "http.md", "exec"), known)  # noqa: S102
    body = b'{"changes":[]}'
    headers = signed_headers([b"old", b"new"], "id", 1_000, body)
    assert known["is_ours"](headers, body if honest else body + b" ", b"new", 1_010) is honest
    assert known["is_ours"](headers, body, b"old", 9_999) is False


@pytest.mark.parametrize("name", ["console", "files", "delta", "iceberg", "http", "opensearch", "rabbitmq"])
def test_the_settings_of_a_page_are_settings(tmp_path: Path, name: str) -> None:
    """Its table names each one, too."""
    path = tmp_path / "t.toml"
    path.write_text(example(name, "toml"), encoding="utf-8")
    _, section = load_settings(path, {}).stream_sink()
    assert section.type == name
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8").partition("## Settings\n")[2]
    assert {field for field in type(section).model_fields if f"`{field}`" not in text} == {"type"}
