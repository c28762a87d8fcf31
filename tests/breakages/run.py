"""Runs a breakage: a copy of the tree with one bug in it, its tests against the copy, and a judgement over each."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.breakages.breakage import Breakage, Red

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = ("schemas", "connector", "spark")
RED: Final = "red"
GREEN: Final = "STILL GREEN"
OTHERWISE: Final = "red for another reason"
ABSENT: Final = "did not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What became of one test under a breakage: `outcome` is RED, and nothing else is right; `words` say more."""

    breakage: str
    promise: str
    test: str
    outcome: str
    seconds: float
    words: str = ""


def copy_sources(target: Path) -> None:
    """The tree as it is, without what git, caches and compilers put there. Compiled code would hide the bug."""
    hidden = shutil.ignore_patterns(".*", "build", "dist", "__pycache__", "*.so", "*.egg-info", "_compiled_sources.py")
    shutil.copytree(ROOT, target, ignore=hidden, symlinks=True)


def run(breakage: Breakage, place: Path) -> list[Judgement]:
    """Run it in a temporary directory; `place` has a folder afterwards with the output, and what came of each test.

    Raises BreakageError where it does not fit the sources.
    """
    folder = place / breakage.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    outcomes = folder / "outcomes.jsonl"
    outcomes.touch()
    with TemporaryDirectory(prefix="tailrace-", ignore_cleanup_errors=True) as temporary:
        tree = Path(temporary, "tree")
        copy_sources(tree)
        breakage.apply(tree)
        own = ("-p", "tests.breakages.outcomes", "-p", "no:cacheprovider", "--basetemp", str(Path(temporary, "t")))
        with (folder / "output.txt").open("wb") as output:
            subprocess.run(
                [sys.executable, "-m", "pytest", "-q", *own, *(red.node for red in breakage.reds)],
                cwd=tree,
                env=_environment(tree, outcomes, breakage.environment),
                stdout=output,
                stderr=output,
                check=False,
            )
    found = [json.loads(line) for line in outcomes.read_text("utf-8").splitlines()]
    return [judged(breakage, red, found) for red in breakage.reds]


def _environment(tree: Path, outcomes: Path, more: Mapping[str, str]) -> dict[str, str]:
    path = os.pathsep.join(str(tree / name) for name in SOURCES)
    own = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "TAILRACE_OUTCOMES": str(outcomes)}
    return {**os.environ, **own, **more}


def judged(breakage: Breakage, red: Red, found: Iterable[Mapping[str, Any]]) -> Judgement:
    """The judgement over one test by what came of its steps; every set of its parameters must fail."""
    steps = [one for one in found if one["test"] == red.node or one["test"].startswith(f"{red.node}[")]
    calls = [one for one in steps if one["step"] == "call"]
    broken = [one for one in steps if one["step"] != "call" and one["outcome"] == "failed"]
    seconds = round(sum(one["seconds"] for one in steps), 1)
    if not calls:
        outcome, words = (OTHERWISE, broken[0]["error"]) if broken else (ABSENT, "")
    elif any(one["outcome"] == "passed" for one in calls):
        outcome, words = GREEN, ""
    elif any(one["outcome"] == "skipped" for one in calls):
        outcome, words = ABSENT, "skipped"
    else:
        strange = [one for one in calls if not one["asserted"] or not re.search(red.says, one["text"])]
        outcome, words = (OTHERWISE, strange[0]["error"]) if strange else (RED, _shown(red, calls[0]["text"]))
    return Judgement(
        breakage=breakage.name,
        promise=breakage.promise,
        test=red.node.removeprefix("tests/"),
        outcome=outcome,
        seconds=seconds,
        words=words or "",
    )


def _shown(red: Red, text: str) -> str:
    """The line by which a failure was known."""
    match = re.search(red.says, text)
    if match is None:
        return ""
    start, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
    return text[start : None if end < 0 else end].lstrip("E> ").strip()[:160]
