"""What each test costs: its setup, call and teardown, in seconds of the clock and of the processors.

`pytest --times FILE` appends a line of JSON a test; `python -m tests.times FILE` prints the dearest files and tests.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

PHASES = ("setup", "call", "teardown")
MOST = 30


class Times:
    """Measures every phase of every test of this process. CPU is the process's own and that of children that ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._costs: dict[str, list[float]] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        self._costs = {}
        return (yield from self._measured("setup"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        return (yield from self._measured("call"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        try:
            return (yield from self._measured("teardown"))
        finally:
            line = {"test": item.nodeid, "file": item.location[0], **self._costs}
            with self._path.open("a") as file:
                file.write(json.dumps(line) + "\n")

    def _measured(self, phase: str) -> Iterator[None]:
        wall, cpu = time.monotonic(), _cpu()
        try:
            return (yield)
        finally:
            self._costs[phase] = [round(time.monotonic() - wall, 4), round(_cpu() - cpu, 4)]


def _cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def report(lines: Iterable[Mapping[str, Any]], most: int = MOST) -> list[str]:
    """The dearest files by wall time, then the dearest tests: wall and CPU seconds, setup, call and teardown apart."""
    files: dict[str, list[float]] = defaultdict(lambda: [0.0] * 7)
    tests: list[tuple[float, str]] = []
    for line in lines:
        costs = [line.get(phase, (0.0, 0.0)) for phase in PHASES]
        row = [*(wall for wall, _ in costs), *(cpu for _, cpu in costs), 1]
        files[line["file"]] = [a + b for a, b in zip(files[line["file"]], row, strict=True)]
        tests.append((sum(wall for wall, _ in costs), line["test"]))

    dearest = sorted(files.items(), key=lambda entry: -sum(entry[1][:3]))[:most]
    total = [sum(column) for column in zip(*files.values(), strict=True)]
    heads = ["wall: setup", "call", "down", "cpu: setup", "call", "down", "tests"]
    table = ["".join(f"{head:>12}" for head in heads) + "  file"]
    for name, row in [*dearest, ("all", total)]:
        table.append("".join(f"{cost:12.1f}" for cost in row[:6]) + f"{row[6]:12.0f}  {name}")
    return table + [f"{wall:12.1f}  {test}" for wall, test in sorted(tests, reverse=True)[:most]]


def _main() -> None:
    for path in sys.argv[1:]:
        lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
        sys.stdout.write("\n".join(report(lines)) + "\n")


if __name__ == "__main__":
    _main()
