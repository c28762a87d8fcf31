"""What a file declares becomes true, on the meta database and over HTTP; the difference is shown first."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tailrace.cli.main import complete
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_server.cli.apply import Declared, carry_out, declared_in, plan
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.model import transitions
from tailrace_server.operations.asking import Asked
from tailrace_server.operations.operations import DirectOperations
from tailrace_server.operations.remote import RemoteOperations
from tests.unit.server.api.conftest import served
from tests.unit.server.requests import settings

__all__ = ["served"]  # a fixture

FILE = """
[[subscription]]
table = "shop.orders"
name = "warehouse"
target = "dwh"
where = "id > 1"
columns = { email = "mask" }
start = "latest"

[subscription.options]
table = "{table}"

[[subscription]]
table = "shop.*"
name = "lake"
target = "lake"
state = "paused"
"""

Apply = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def apply(door: list[str], tmp_path: Path) -> Apply:
    """The command in a directory with settings; what it prints."""

    def run(text: str, *words: str) -> list[dict[str, Any]]:
        (tmp_path / "subscriptions.toml").write_text(text)
        answer = CliRunner().invoke(complete(), ["apply", "-f", "subscriptions.toml", "--unchecked", *words, *door])
        assert answer.exit_code == 0, answer.output
        return [json.loads(line) for line in answer.stdout.splitlines()]

    return run


@pytest.mark.slow
@pytest.mark.promise("subscription.declared")
def test_what_is_declared_becomes_true(apply: Apply) -> None:
    wanted = [
        {"reference": "shop.orders/warehouse", "change": "subscribe", "differences": []},
        {"reference": "shop.*/lake", "change": "subscribe", "differences": []},
        {"reference": "shop.*/lake", "change": "pause", "differences": []},
    ]
    assert apply(FILE, "--dry-run") == wanted
    assert apply(FILE) == wanted  # which a dry run has not changed
    assert apply(FILE) == []
    changed = FILE.replace("id > 1", "id > 2").replace('email = "mask"', 'name = "drop"').replace("paused", "active")
    differences = ["where: id > 1 -> id > 2", "columns.email: mask -> unset", "columns.name: unset -> drop"]
    wanted = [
        {"reference": "shop.orders/warehouse", "change": "alter", "differences": differences},
        {"reference": "shop.*/lake", "change": "resume", "differences": []},
    ]
    assert apply(changed, "--dry-run") == wanted
    assert apply(changed) == wanted
    changed = changed.replace('"{table}"', '"t_{table}"')
    assert [row["differences"] for row in apply(changed)] == [["options.table: {table} -> t_{table}"]]
    assert apply(changed) == []
    only = changed.partition('[[subscription]]\ntable = "shop.*"')[0]
    assert apply(only) == []
    assert apply(only, "--prune") == [{"reference": "shop.*/lake", "change": "cancel", "differences": []}]
    assert apply(only, "--prune") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("subscription = 3", "must have \\[\\[subscription\\]\\] tables alone"),
        (FILE.replace("where", "were"), "subscription 1: unknown name were; did you mean where"),
        (FILE.replace('"paused"', '"stopped"'), "subscription 2: state must be"),
        (FILE.replace('name = "lake"', ""), "subscription 2: name is missing"),
        (FILE.replace('target = "lake"', "target = {}"), "subscription 2: target is missing, or is no text"),
        (FILE + FILE, "shop.orders/warehouse is declared twice"),
        ("[[", "not TOML"),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "file.toml").write_text(text)
    with pytest.raises(SettingsError, match=words):
        declared_in(tmp_path / "file.toml")


@pytest.mark.parametrize(("line", "setting"), [("start = 2026-05-01", "start"), ("options = { x = nan }", "options.x")])
def test_a_value_that_json_has_no_form_for_is_refused_by_its_name(
    door: list[str], tmp_path: Path, line: str, setting: str
) -> None:
    (tmp_path / "file.toml").write_text(f'[[subscription]]\ntable = "s.t"\nname = "w"\ntarget = "dwh"\n{line}\n')
    refused = CliRunner().invoke(complete(), ["apply", "-f", "file.toml", "--unchecked", *door])
    assert (refused.exit_code, f"{setting}: " in refused.output) == (2, True), refused.output


@pytest.fixture(autouse=True)
def _settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tailrace.toml").write_text('[sink.dwh]\ntype = "sql"\nurl = "sqlite:///dwh.db"\n')


WORDS = ("subscribe", "shop.orders", "--name", "w", "--target", "dwh", "-o", "table={table}", "--unchecked")


def test_a_table_into_a_target() -> None:
    answer = CliRunner().invoke(complete(), WORDS)
    assert answer.exit_code == 0, answer.output
    assert answer.output.count("settings: tailrace.toml") == 1
    made = json.loads(answer.stdout.splitlines()[-1])
    assert (made["target"], made["sink"]) == ("dwh", "sql")
    refused = CliRunner().invoke(complete(), [*WORDS[:-2], "url=sqlite:///other.db", "--unchecked"])
    assert (refused.exit_code, "unknown setting options.url" in refused.output) == (2, True)


@pytest.mark.slow
def test_nothing_is_cancelled_where_nobody_can_be_asked() -> None:
    made = CliRunner().invoke(complete(), WORDS)
    assert made.exit_code == 0, made.output
    refused = CliRunner().invoke(complete(), ["cancel", "w"])
    assert (refused.exit_code, "There is no terminal to ask on: give --yes" in refused.output) == (2, True)
    assert CliRunner().invoke(complete(), ["cancel", "w", "--yes"]).exit_code == 0


@pytest.mark.slow
def test_one_that_is_declared_paused_is_never_active(door: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a worker takes it up before the pause comes, or for good where that never comes."""

    def lose(_operations: object, _reference: str) -> None:
        raise ServiceError("the command was killed")

    for operations in (DirectOperations, RemoteOperations):
        monkeypatch.setattr(operations, "pause", lose)
    Path("subscriptions.toml").write_text(FILE)
    CliRunner().invoke(complete(), ["apply", "-f", "subscriptions.toml", "--unchecked", *door])
    listed = CliRunner().invoke(complete(), ["subscriptions", *door]).stdout.splitlines()
    assert [(row["name"], row["state"]) for row in map(json.loads, listed)] == [
        ("lake", "paused"),
        ("warehouse", "active"),
    ]


def test_one_that_is_done_with_its_snapshot_is_as_good_as_paused(subscriptions: Subscriptions) -> None:
    """Nothing runs it. A pause would be refused, when half of the file is done."""
    operations = DirectOperations(subscriptions, settings(), "test")
    paused = Declared(Asked(table="shop.orders", name="w", target="dwh"), "paused")
    made, _ = operations.subscribe(paused.asked)
    subscriptions.change(made["id"], "finish", "test", partial(transitions.finished, reason=""))
    assert plan(operations, [paused], prune=False) == []
    altered = replace(paused, asked=replace(paused.asked, where="id > 1"))
    carry_out(operations, [altered], plan(operations, [altered], prune=False))
    assert operations.details("w")["state"] == "paused"
