"""`tailrace subscriptions NAME --letters`: what cannot be asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailrace.cli.main import complete

REFERENCE = "shop.orders/w"


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [("--letters",), (REFERENCE, "--replay"), (REFERENCE, "--letters", "--server", "http://127.0.0.1:1")]
)
def test_what_cannot_be_is_said(words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answer = CliRunner().invoke(complete(), ["subscriptions", *words])
    assert (answer.exit_code, "--letters" in answer.stderr) == (2, True)
