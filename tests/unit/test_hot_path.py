"""The unit tests on compiled code leave out no file that reaches it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hot_path import ROOT, files_of_tests

pytestmark = pytest.mark.slow  # the imports of every test are read
UNIT = ROOT / "tests" / "unit"


@pytest.fixture(scope="module")
def chosen() -> frozenset[Path]:
    return files_of_tests()


@pytest.mark.parametrize(
    "file",
    [
        "commitlog/test_frames.py",  # imports a compiled module
        "spark/sinks/test_letters.py",  # by a helper of tests
        "spark/rowstate/test_row.py",  # by an __init__
        "capture/test_cdcraw.py",  # its subject imports a compiled module
        "test_build.py",  # is about compiled code
    ],
)
def test_what_reaches_compiled_code_is_run_on_it(chosen: frozenset[Path], file: str) -> None:
    assert UNIT / file in chosen


def test_what_does_not_is_left_out(chosen: frozenset[Path]) -> None:
    assert UNIT / "local/test_ports.py" not in chosen
    left_out = set(UNIT.rglob("test_*.py")) - chosen
    assert 20 < len(left_out) < len(set(UNIT.rglob("test_*.py"))) / 3


def test_tests_outside_the_unit_tests_are_chosen_by_the_same_rule(chosen: frozenset[Path]) -> None:
    assert {ROOT / "tests/corpus/test_recorded.py", ROOT / "tests/fuzz/test_layers.py"} <= chosen
