"""`tailrace subscriptions NAME --letters` on a real SQL sink: what it refused, and a count that says what is there."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tailrace.cli.main import complete
from tailrace_common.settings import load_settings
from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.leases import Leases
from tailrace_server.model.delivery import News
from tailrace_server.worker.settings import stream_settings
from tailrace_spark.batch.delivery import DeadLetter, Piece, RecordId
from tailrace_spark.sinks.registry import sink_of

REFERENCE = "shop.orders/w"


def run(*words: str) -> tuple[int, str, str]:
    answer = CliRunner().invoke(complete(), [*words])
    return answer.exit_code, answer.stdout, answer.stderr


def details() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(run("subscriptions", REFERENCE)[1])
    return read


@pytest.fixture
def _refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscription whose worker has counted three letters; its sink has two."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tailrace.toml").write_text(f'[sink.copy]\ntype = "sql"\nurl = "sqlite:///{tmp_path / "copy.db"}"\n')
    assert run("subscribe", "shop.orders", "--name", "w", "--target", "copy", "--unchecked")[0] == 0
    base = load_settings(tmp_path / "tailrace.toml", {})
    with MetaDatabase(base.server.url.get_secret_value()) as database:
        leases = Leases(database, base.topics.prefix, "worker", 60)
        [claim] = leases.claim(1)
        leases.save(claim, {}, News(letters=3))
        leases.release(claim)
    settings = stream_settings(base, claim.subscription, "")
    letters = tuple(DeadLetter(RecordId("t.shop.orders", 0, offset), "no such type") for offset in (7, 9))
    with closing(sink_of(settings, claim.subscription.sink_name)) as sink:
        sink.write([Piece((), letters)])


@pytest.mark.slow
@pytest.mark.usefixtures("_refused")
def test_they_are_listed_by_a_command_that_works_and_counted_as_they_are() -> None:
    before = details()
    assert before["letters"] == 3
    code, listed, errors = run("subscriptions", REFERENCE, "--letters")
    assert code == 0, errors
    assert [(row["offset"], row["reason"]) for row in map(json.loads, listed.splitlines())] == [
        (7, "no such type"), (9, "no such type"),
    ]  # fmt: skip
    after = details()
    assert (after["letters"], after["letters_since"]) == (2, before["letters_since"])


@pytest.mark.slow
@pytest.mark.usefixtures("_refused")
@pytest.mark.parametrize(
    "words", [("--letters",), (REFERENCE, "--replay"), (REFERENCE, "--letters", "--server", "http://127.0.0.1:1")]
)
def test_what_cannot_be_is_said(words: tuple[str, ...]) -> None:
    code, _, errors = run("subscriptions", *words)
    assert (code, "--letters" in errors) == (2, True)


@pytest.mark.slow
@pytest.mark.usefixtures("_refused")
def test_without_any_left_nothing_is_shown(tmp_path: Path) -> None:
    (tmp_path / "copy.db").unlink()
    assert run("subscriptions", REFERENCE, "--letters")[0] == 0
    after = details()
    assert (after["letters"], after["letters_since"]) == (0, None)
