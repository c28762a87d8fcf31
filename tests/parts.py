"""The parts that all tests are run in: `python -m tests.parts [PART...]`, which `make test-all` calls.

A test of pytest is in exactly one part, by its file: the gate's two come first, then the first pattern that fits.
Every part runs to its end however many tests fail. The table at the end, and in build/test-all/table.txt, has each
part's tests that passed, failed and were skipped, and its minutes. Exit code 1 where one failed, or a part ran none.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).resolve().parent
LOGS: Final = TESTS.parent / "build" / "test-all"

UNIT: Final = "unit"
SPINE: Final = "spine"
SPINE_MARK: Final = "mark.spine"
PATTERNS: Final[Mapping[str, Sequence[str]]] = {
    "benchmarks": ("integration/benchmarks/*",),
    "field": ("field/*",),
    "images": ("integration/deploy/*",),
    "upgrades": ("integration/upgrades/*", "integration/test_versions.py", "unit/test_installs.py"),
    "page": ("integration/server/test_page*",),
    "kills": ("integration/faults/*", "integration/*kills*"),
    "server": ("integration/server/*",),
    "snapshots": ("integration/snapshot/*",),
    "rings": ("integration/topology/*",),
    "streams": ("integration/*",),
    "sinks": ("unit/spark/sinks/*",),
    "rest": ("*",),
}
"""Parts of pytest beyond the gate, with the files of their tests, below tests/."""
_LONG_PROPERTIES: Final = {"TAILRACE_TEST_PROPERTIES": "long"}
_WITHOUT_SERVICES: Final = ("sinks", "rest")
"""Parts whose processes share nothing, so that two of them take half the time."""
_SHARED: Final = ("-n", "2", "--dist", "worksteal")
_PATIENT: Final = ("-o", "faulthandler_timeout=0")
_PYTEST: Final = (sys.executable, "-m", "pytest", "-q")


@dataclass(frozen=True, slots=True)
class Part:
    """What runs it, beside which variables of the environment."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a part; `ended` is its exit code."""

    part: str
    passed: int
    failed: int
    skipped: int
    minutes: float
    ended: int

    @property
    def is_good(self) -> bool:
        return self.ended == 0 and not self.failed and self.passed > 0

    @property
    def fault(self) -> str:
        """What is wrong with it, in two words; empty for a part that is good."""
        if self.is_good:
            return ""
        return f"exit {self.ended}" if self.ended or self.failed else "none ran"


def part_of(path: Path, *, in_gate: bool, integration: bool) -> str:
    """The part of a test in this file."""
    if in_gate:
        return SPINE if integration else UNIT
    name = path.relative_to(TESTS).as_posix()
    return next(part for part, patterns in PATTERNS.items() if any(fnmatch(name, pattern) for pattern in patterns))


def may_have(path: Path, part: str) -> bool:
    """Whether a test of the file can be in the part: told without importing the file, as all take half a minute."""
    if part == SPINE:
        return SPINE_MARK in path.read_text("utf-8")
    beyond = part_of(path, in_gate=False, integration=False)
    return part in (UNIT, beyond)


def parts() -> list[Part]:
    """All of them, in the order in which they run."""
    pytest_parts = [
        # As one word: `benchmarks` alone would be taken for the directory, before conftest.py knows of parts.
        Part(name, (*_PYTEST, *(_SHARED if name in _WITHOUT_SERVICES else ()), f"--part={name}", *_PATIENT), {})
        for name in PATTERNS
    ]
    # A property at length is one test of up to ten minutes beside other work.
    properties = (*_SHARED, *_PATIENT, "--timeout=3600", "-m", "hypothesis and not integration and not long")
    return [
        Part("gate", ("make", "--no-print-directory", "test"), {}),
        *pytest_parts,
        Part("properties", (*_PYTEST, *properties), _LONG_PROPERTIES),
        Part("mutants", (sys.executable, "-m", "tests.breakages"), {}),
    ]


def run(part: Part, folder: Path) -> Result:
    """Run one to its end; what it prints is kept in the folder."""
    began = time.monotonic()
    log = folder / f"{part.name}.log"
    with log.open("wb") as output:
        process = subprocess.run(
            part.command, cwd=TESTS.parent, env={**os.environ, **part.environment}, stdout=output, stderr=output
        )
    passed, failed, skipped = counts(log.read_text("utf-8", "replace").splitlines())
    return Result(part.name, passed, failed, skipped, (time.monotonic() - began) / 60, process.returncode)


def counts(lines: Iterable[str]) -> tuple[int, int, int]:
    """How many tests passed, failed and were skipped, by pytest's closing lines and by the judgements over mutants."""
    passed = failed = skipped = 0
    for line in lines:
        if re.search(r" in \d+\.\d+s\b", line):
            passed += sum(int(number) for number in re.findall(r"(\d+) passed", line))
            failed += sum(int(number) for number in re.findall(r"(\d+) (?:failed|error)", line))
            skipped += sum(int(number) for number in re.findall(r"(\d+) skipped", line))
        elif match := re.match(r'\{"breakage": .*"outcome": "([^"]*)"', line):
            passed, failed = passed + (match[1] == "red"), failed + (match[1] != "red")
    return passed, failed, skipped


def table(results: Sequence[Result]) -> str:
    """A line a part, and their sum."""
    rows = [("part", "passed", "failed", "skipped", "minutes", "")]
    rows += [_row(one.part, [one], one.fault) for one in results]
    rows.append(_row("all", results, ""))
    return "".join(f"{a:<12}{b:>8}{c:>8}{d:>9}{e:>9}  {f}".rstrip() + "\n" for a, b, c, d, e, f in rows)


def _row(name: str, results: Sequence[Result], fault: str) -> tuple[str, str, str, str, str, str]:
    numbers = [sum(column) for column in zip(*((one.passed, one.failed, one.skipped) for one in results), strict=True)]
    passed, failed, skipped = (str(number) for number in numbers)
    return name, passed, failed, skipped, f"{sum(one.minutes for one in results):.1f}", fault


def main(arguments: Sequence[str] | None = None) -> int:
    """Run those that are named, or all; the exit code."""
    every = {part.name: part for part in parts()}
    parser = argparse.ArgumentParser(prog="python -m tests.parts", description=__doc__)
    parser.add_argument("names", metavar="PART", nargs="*", help=f"of {', '.join(every)} (default: all)")
    names = parser.parse_args(arguments).names
    if unknown := set(names) - every.keys():
        parser.error(f"there is no part {', '.join(sorted(unknown))}")

    LOGS.mkdir(parents=True, exist_ok=True)
    results = []
    for name, part in every.items():
        if not names or name in names:
            sys.stderr.write(f"{name}: running; its output is in {(LOGS / name).relative_to(TESTS.parent)}.log\n")
            results.append(run(part, LOGS))
            (LOGS / "table.txt").write_text(table(results), "utf-8")
            sys.stderr.write(table(results).splitlines()[-2] + "\n")
    sys.stdout.write(table(results))
    return 0 if all(result.is_good for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
