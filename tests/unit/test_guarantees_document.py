"""docs/guarantees.md: every promise names a test, and every test that it names exists and is as long as it says."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")


def rows() -> list[list[str]]:
    """The cells of every table's rows, without the heads."""
    tables = re.findall(r"(?:^\|.*\n)+", TEXT, re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split(" |")] for one in tables for line in one.splitlines()[2:]]


def defined() -> dict[str, bool]:
    """Every test there is; whether all of it runs in make test-long only."""
    found = {}
    of_tests = r"((?:^@pytest\.mark\..*\n)*)^def (test_\w+)"
    for pattern, form in (("*_contract.py", r"()^    def (test_\w+)"), ("test_*.py", of_tests)):
        for path in sorted((ROOT / "tests").rglob(pattern)):
            for marks, name in re.findall(form, path.read_text("utf-8"), re.M):
                found[name] = "@pytest.mark.long" in marks
    return found


def test_every_test_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    assert len(named) > 50
    assert named <= defined().keys()


def test_every_promise_names_a_test() -> None:
    assert len(rows()) > 50
    above = ""
    for row in rows():
        assert "`test_" in row[-1] or (row[-1].startswith("the same") and "`test_" in above), row
        above = row[-1] if "`test_" in row[-1] else above


def test_those_that_take_minutes_are_marked() -> None:
    long = {name for name, is_long in defined().items() if is_long}
    told = set(re.findall(r"`(test_\w+)` \(long", TEXT))
    assert told == set(re.findall(r"`(test_\w+)`", TEXT)) & long
