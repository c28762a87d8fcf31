"""Log lines have as many values as places: a wrong one fails where somebody reads it, and ruff does not see ours."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
METHODS: Final = {"debug", "info", "warning", "error", "exception", "critical"}
PLACE: Final = re.compile(r"%[-0-9.]*[sdfgrx]")


def mismatches(source: str) -> Iterator[tuple[int, str]]:
    """Line and words of each log call whose values do not fit its places."""
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS):
            continue
        words = node.args[0] if node.args else None
        if not (isinstance(words, ast.Constant) and isinstance(words.value, str)):
            continue
        places = len(PLACE.findall(words.value.replace("%%", "")))
        if not any(isinstance(value, ast.Starred) for value in node.args) and places != len(node.args) - 1:
            yield node.lineno, words.value


def test_a_wrong_number_of_values_is_seen() -> None:
    assert list(mismatches('log.info("%d of %s", 1)\nlog.info("100 %% of %d", 1)')) == [(1, "%d of %s")]


@pytest.mark.slow
def test_every_log_line_has_its_values() -> None:
    sources = [path for root in ("schemas", "common", "connector", "spark") for path in (ROOT / root).rglob("*.py")]
    assert len(sources) > 300
    assert [(path.name, *fault) for path in sources for fault in mismatches(path.read_text("utf-8"))] == []
