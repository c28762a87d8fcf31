"""Every case of docs/guarantees.md (tests/promises.toml), and every row of docs/comparison.md, has its tests."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from tests.tools import tool

PAGES: Final = tool("traceability").PAGES
ROOT: Final = Path(__file__).resolve().parents[2]
MOST_PROMISES: Final = 50
"""That people can still read."""


@pytest.fixture(scope="module")
def traceability() -> Any:
    return tool("traceability")


@pytest.fixture(scope="module")
def names(traceability: Any) -> list[str]:
    """The name of every case."""
    return [name for rows in traceability.promised(ROOT).values() for promise in rows for name in promise.cases]


def test_the_promises_are_few_sentences(traceability: Any) -> None:
    promises = traceability.promised(ROOT)["guarantees.md"]
    assert 30 < len(promises) <= MOST_PROMISES
    assert [promise.words for promise in promises if re.search(r"[.;] ", promise.words)] == []
    assert len({promise.anchor for promise in promises}) == len(promises)


def test_cases_are_of_promises(traceability: Any) -> None:
    anchors = {promise.anchor for promise in traceability.promised(ROOT)["guarantees.md"]}
    assert tomllib.loads((ROOT / traceability.CASES).read_text("utf-8")).keys() == anchors


def test_every_row_promises_under_a_name_of_its_own(traceability: Any, names: list[str]) -> None:
    heads = ("| promise |", "| input |", "| --- |")
    for page in traceability.PAGES:
        lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
        rows = [line for line in lines if line.startswith("|") and not line.startswith(heads)]
        assert len(rows) == len(traceability.promised(ROOT)[page])
    assert len(names) > 150
    assert len(set(names)) == len(names)
    assert [name for name in names if not re.fullmatch(r"[a-z-]+\.[a-z0-9-]+", name)] == []


@pytest.mark.slow
def test_every_promise_has_tests_and_every_mark_is_of_a_promise(traceability: Any, names: list[str]) -> None:
    marked = {name for test in traceability.marked_tests(ROOT) for name in test.promises}
    assert marked == set(names)


@pytest.mark.slow
def test_every_mark_is_of_tests(traceability: Any) -> None:
    """pytest does not collect what is named otherwise; a mark elsewhere would show nothing."""
    tests = traceability.marked_tests(ROOT)
    assert len(tests) > 400
    assert [test for test in tests if not test.name.startswith(("test_", "Test"))] == []
    files = (ROOT / "tests").rglob("*.py")
    written = {str(path.relative_to(ROOT)) for path in files if "@pytest.mark.promise(" in path.read_text("utf-8")}
    assert written - {"tests/unit/test_guarantees_document.py"} == {test.file for test in tests}
