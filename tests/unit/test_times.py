"""What tests cost is measured and told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.times import report

pytest_plugins = ["pytester"]


@pytest.mark.slow
def test_each_test_has_a_line_with_its_phases(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        "from pathlib import Path\nfrom tests.times import Times\n"
        "def pytest_configure(config): config.pluginmanager.register(Times(Path('times.jsonl')))\n"
    )
    pytester.makepyfile("def test_good(): pass\n\ndef test_bad(): assert 0\n")
    pytester.runpytest("-q", "-p", "no:cacheprovider").assert_outcomes(passed=1, failed=1)
    lines = [json.loads(line) for line in Path(pytester.path, "times.jsonl").read_text().splitlines()]
    assert [line["test"].partition("::")[2] for line in lines] == ["test_good", "test_bad"]
    assert all(len(line[phase]) == 2 for line in lines for phase in ("setup", "call", "teardown"))


def test_the_dearest_come_first_and_a_skipped_phase_counts_nothing() -> None:
    lines = [
        {"test": "a.py::cheap", "file": "a.py", "setup": [0.1, 0.1]},
        {"test": "b.py::dear", "file": "b.py", "setup": [1, 0.5], "call": [8, 2], "teardown": [1, 0]},
    ]
    table = report(lines, most=1)
    assert [row.split()[-1] for row in table] == ["file", "b.py", "all", "b.py::dear"]
    assert table[1].split()[:7] == ["1.0", "8.0", "1.0", "0.5", "2.0", "0.0", "1"]
