"""Every test is in one part, and what the parts print becomes one table."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.parts import PATTERNS, SPINE, TESTS, UNIT, Part, Result, counts, may_have, part_of, parts, run, table

FILES = sorted(TESTS.rglob("test_*.py"))


@pytest.mark.parametrize(
    ("file", "part"),
    [
        ("integration/deploy/test_helm.py", "images"),
        ("integration/faults/test_kills.py", "kills"),
        ("integration/test_stream_kills.py", "kills"),
        ("integration/server/test_worker_kills.py", "kills"),
        ("integration/server/test_page.py", "page"),
        ("integration/server/test_resets.py", "server"),
        ("integration/test_stream.py", "streams"),
        ("unit/spark/sinks/sql/test_sink.py", "sinks"),
        ("corpus/test_recorded.py", "rest"),
    ],
)
def test_beyond_the_gate_a_test_is_in_the_part_of_its_file(file: str, part: str) -> None:
    assert part_of(TESTS / file, in_gate=False, integration=True) == part
    assert part_of(TESTS / file, in_gate=True, integration=False) == UNIT
    assert part_of(TESTS / file, in_gate=True, integration=True) == SPINE


def test_every_file_is_collected_for_its_part_and_no_part_is_empty() -> None:
    part_by_file = {file: part_of(file, in_gate=False, integration=False) for file in FILES}
    assert all(may_have(file, part) for file, part in part_by_file.items())
    assert PATTERNS.keys() == set(part_by_file.values())
    assert any(may_have(file, SPINE) for file in FILES)


def test_closing_lines_and_judgements_are_counted() -> None:
    lines = [
        "605 passed, 10 skipped in 156.64s (0:02:36)",
        "==== 2 failed, 753 passed, 1 error in 3498.65s (0:58:18) ====",
        "12 passed said a test",
        '{"breakage": "a", "test": "t", "outcome": "red", "seconds": 1}',
        '{"breakage": "b", "test": "t", "outcome": "STILL GREEN", "seconds": 1}',
    ]
    assert counts(lines) == (605 + 753 + 1, 2 + 1 + 1, 10)


def test_no_part_is_taken_for_a_directory_of_tests() -> None:
    """Pytest takes a word that is a path for one, before it knows of our options."""
    words = [word for part in parts() for word in part.command[1:]]
    assert not [word for word in words if (TESTS.parent / word).exists()]


def test_a_part_that_fails_is_told_and_does_not_end_the_others(tmp_path: Path) -> None:
    program = "import sys; print('1 failed, 2 passed in 0.10s'); sys.exit(1)"
    failed = run(Part("first", (sys.executable, "-c", program), {}), tmp_path)
    assert (failed.passed, failed.failed, failed.is_good) == (2, 1, False)
    assert (tmp_path / "first.log").read_text() == "1 failed, 2 passed in 0.10s\n"
    rows = table([failed, Result("second", 5, 0, 3, 1.5, 0)]).splitlines()
    assert [row.split()[:4] for row in rows] == [
        ["part", "passed", "failed", "skipped"],
        ["first", "2", "1", "0"],
        ["second", "5", "0", "3"],
        ["all", "7", "1", "3"],
    ]
    assert rows[1].endswith("exit 1")


def test_a_part_whose_tests_were_all_skipped_is_not_good() -> None:
    skipped = Result("page", 0, 0, 2, 0.2, 0)
    assert not skipped.is_good
    assert table([skipped]).splitlines()[1].endswith("none ran")
