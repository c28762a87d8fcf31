"""Every promise of docs/guarantees/, and every row of docs/comparison.md, has tests that are marked with its name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest

from tests.tools import tool

PAGES: Final = tool("traceability").PAGES
ROOT: Final = Path(__file__).resolve().parents[2]
HEADINGS: Final = (
    "Delivery",
    "Ordering",
    "Failure modes",
    "Schema changes",
    "Expiry",
    "Truncation",
    "Limits",
    "What is not guaranteed",
)


@pytest.fixture(scope="module")
def traceability() -> Any:
    return tool("traceability")


@pytest.fixture(scope="module")
def names(traceability: Any) -> list[str]:
    """The name of every promise."""
    return [name for rows in traceability.promised(ROOT).values() for name, _ in rows]


def test_its_parts_are_those_that_operators_ask_for() -> None:
    """A page each, in the order of the index."""
    index = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    pages = re.findall(r"\| \[(.*?)\]\((guarantees/.*?)\)", index)
    assert tuple(title for title, _ in pages) == HEADINGS
    for title, page in pages:
        assert (ROOT / "docs" / page).read_text(encoding="utf-8").startswith(f"# {title}\n")
    assert tuple(page for _, page in pages) == tuple(page for page in PAGES if page.startswith("guarantees/"))


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


def test_long_tests_are_told(traceability: Any, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_x.py").write_text(
        "@pytest.mark.promise('a.b')\n@pytest.mark.long\nclass TestX:\n"
        "    @pytest.mark.promise('a.c')\n    def test_y(self): ...\n"
        "@pytest.mark.promise('a.b', 'a.c')\ndef test_z(): ...\n"
    )
    found = [(test.name, test.long, test.promises) for test in traceability.marked_tests(tmp_path)]
    assert found == [("TestX", True, ("a.b",)), ("test_y", True, ("a.c",)), ("test_z", False, ("a.b", "a.c"))]
