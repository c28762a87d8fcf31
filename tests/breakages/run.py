"""Runs breakages: copies of the tree with one bug in each, their tests against the copies, a judgement over each."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests import properties
from tests.breakages.breakage import ASSERTED, SOURCES, Breakage, Red

ROOT: Final = Path(__file__).resolve().parents[2]
RED: Final = "red"
GREEN: Final = "STILL GREEN"
OTHERWISE: Final = "red for another reason"
ABSENT: Final = "did not run"
_LOOK_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What became of one test under a breakage: `outcome` is RED, and nothing else is right; `words` say more."""

    breakage: str
    promise: str
    test: str
    outcome: str
    seconds: float
    words: str = ""


def sessions(breakages: Iterable[Breakage]) -> list[tuple[Breakage, ...]]:
    """Those that can share their tests' services, the cheapest first: where the bug is in processes of their own only.
    Each of the others is alone."""
    ordered = sorted(breakages, key=lambda one: (one.needs, one.session or one.name))
    return [tuple(some) for _, some in groupby(ordered, key=lambda one: (one.needs, one.session or one.name))]


def run(breakages: Sequence[Breakage], place: Path) -> Iterator[Judgement]:
    """Run one session in a temporary directory, and judge each test as it ends; `place` keeps what pytest printed, and
    what came of each test, under the first one's name.

    Raises BreakageError where one does not fit the sources.
    """
    folder = place / breakages[0].name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    outcomes = folder / "outcomes.jsonl"
    outcomes.touch()
    with TemporaryDirectory(prefix="tailrace-", ignore_cleanup_errors=True) as temporary:
        tree, plan = Path(temporary, "tree"), Path(temporary, "plan.json")
        copy_tree(tree)
        if breakages[0].session is None:
            breakages[0].apply(tree)
        plan.write_text(json.dumps({one.name: _planned(one, Path(temporary)) for one in breakages}))
        own = ("-p", "tests.breakages.outcomes", "-p", "no:cacheprovider", "--basetemp", str(Path(temporary, "t")))
        nodes = {f"tests/{red.file}::{red.function}" for one in breakages for red in one.reds}
        with (folder / "output.txt").open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", "-q", *own, *sorted(nodes)],
                cwd=tree,
                env={**os.environ, **_own(path_of(tree), outcomes, plan)},
                stdout=output,
                stderr=output,
            )
            try:
                yield from _judgements(breakages, process, outcomes)
            finally:
                process.send_signal(signal.SIGINT)  # so that it ends its services; it has ended, where nothing is amiss
                process.wait()


def copy_tree(target: Path) -> None:
    """The tree as it is, without what git and compilers put there. Compiled code would hide the bug.

    Bytecode comes along: Python takes it where a file has its former time and size, and the broken file has not.
    """
    hidden = shutil.ignore_patterns(".*", "build", "dist", "*.so", "*.egg-info", "_compiled_sources.py")
    shutil.copytree(ROOT, target, ignore=hidden, symlinks=True)


def path_of(tree: Path) -> str:
    """Where Python finds the product's packages of a tree."""
    return os.pathsep.join(str(tree / name) for name in SOURCES)


def _planned(breakage: Breakage, place: Path) -> dict[str, object]:
    """What the plugin has to know of one, whose sources are in `place`."""
    tree = place / "tree"
    if breakage.session is not None:
        tree = place / breakage.name
        for name in SOURCES:
            shutil.copytree(place / "tree" / name, tree / name)
        breakage.apply(tree)
    tests = [red.node for red in breakage.reds]
    return {"tests": tests, "path": path_of(tree), "environment": dict(breakage.environment)}


def _own(path: str, outcomes: Path, plan: Path) -> dict[str, str]:
    # The copies have no history, of which tests of upgrades build the last version.
    git = {"GIT_DIR": str(ROOT / ".git")}
    own = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", properties.VARIABLE: "long"}
    return {**own, **git, "TAILRACE_OUTCOMES": str(outcomes), "TAILRACE_PLAN": str(plan)}


def _judgements(breakages: Sequence[Breakage], process: subprocess.Popen[bytes], outcomes: Path) -> Iterator[Judgement]:
    """Those of every test, each as soon as all of its steps are there, at the latest when pytest has ended."""
    left = [(one, red) for one in breakages for red in one.reds]
    over = False
    while left and not over:
        over = process.poll() is not None
        found = [json.loads(line) for line in outcomes.read_text("utf-8").splitlines(keepends=True) if line[-1] == "\n"]
        for one, red in list(left):
            steps = steps_of(one, red, found)
            # Another test has begun meanwhile: this one has no more parameters.
            if over or (steps and steps[-1]["step"] == "teardown" and steps[-1] is not found[-1]):
                left.remove((one, red))
                yield judged(one, red, steps)
        time.sleep(0 if over else _LOOK_SECONDS)


def steps_of(breakage: Breakage, red: Red, found: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What came of a test under a breakage, with all of its parameters."""
    of_it = (one for one in found if one["breakage"] == breakage.name)
    return [one for one in of_it if one["test"] == red.node or one["test"].startswith(f"{red.node}[")]


def judged(breakage: Breakage, red: Red, steps: Sequence[Mapping[str, Any]]) -> Judgement:
    """The judgement over one test by what came of its steps; every set of its parameters must fail."""
    calls = [one for one in steps if one["step"] == "call"]
    broken = [one for one in steps if one["step"] != "call" and one["outcome"] == "failed"]
    seconds = round(sum(one["seconds"] for one in steps), 1)
    if not calls:
        outcome, words = (OTHERWISE, broken[0]["error"]) if broken else (ABSENT, "")
    elif passed := [one["test"].removeprefix(red.node) for one in calls if one["outcome"] == "passed"]:
        # With other parameters the test may not reach the bug: those need a bug of their own.
        outcome, words = GREEN, " ".join(passed)
    elif any(one["outcome"] == "skipped" for one in calls):
        outcome, words = ABSENT, "skipped"
    else:
        strange = [one for one in calls if not _is_known(red, one)]
        outcome, words = (OTHERWISE, strange[0]["error"]) if strange else (RED, _shown(red, calls[0]["text"]))
    return Judgement(
        breakage=breakage.name,
        promise=breakage.promise,
        test=red.node.removeprefix("tests/"),
        outcome=outcome,
        seconds=seconds,
        words=words or "",
    )


def _is_known(red: Red, call: Mapping[str, Any]) -> bool:
    """Whether a test failed as it is to: by an assertion, or by an error that has the words which are asked for."""
    if call["asserted"]:
        return re.search(red.says, call["text"]) is not None
    return red.says != ASSERTED and re.search(red.says, call["error"] or "") is not None


def _shown(red: Red, text: str) -> str:
    """The line by which a failure was known."""
    match = re.search(red.says, text)
    if match is None:
        return ""
    start, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
    return text[start : None if end < 0 else end].lstrip("E> ").strip()[:160]
