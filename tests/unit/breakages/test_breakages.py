"""The table of breakages fits the sources and the tests, and covers every fault test and every promise of delivery.

What a change of sources or tests can break is marked long.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.breakages.breakage import ASSERTED, Breakage, Needs, Red, breakage
from tests.breakages.mutations import BreakageError, drop
from tests.breakages.run import ABSENT, GREEN, OTHERWISE, RED, ROOT, judged, sessions, steps_of
from tests.breakages.table import BREAKAGES
from tests.tools import tool

OF_DELIVERY: Final = ("agent.", "others.")
"""How the names of the agent's promises begin; generations, mirror and sinks are not its delivery."""
REDS: Final = [red for one in BREAKAGES for red in one.reds]


def functions(folder: str) -> dict[str, set[str]]:
    """The tests in each file below a folder of tests, and the classes that have some by a contract."""
    root = ROOT / "tests"
    files = sorted((root / folder).rglob("test_*.py"))
    names = {path: re.findall(r"^(?:def|class) ([tT]est\w+)", path.read_text("utf-8"), re.M) for path in files}
    return {str(path.relative_to(root)): set(found) for path, found in names.items()}


@pytest.mark.long
@pytest.mark.parametrize("bug", BREAKAGES, ids=lambda bug: bug.name)
def test_each_fits_the_sources(bug: Breakage) -> None:
    ast.parse(bug.broken(ROOT))


def test_names_are_unique() -> None:
    names = [one.name for one in BREAKAGES]
    assert len(set(names)) == len(names)


@pytest.mark.long
def test_their_tests_exist_and_what_they_say_is_a_pattern() -> None:
    there = functions("integration") | functions("unit")
    for red in REDS:
        assert red.function.partition("::")[0] in there.get(red.file, ()), red.node
        re.compile(red.says)


@pytest.mark.long
def test_their_tests_have_these_parameters() -> None:
    """Otherwise the breakage runs nothing, and only whoever runs it hears of it."""
    nodes = {red.node for red in REDS if red.node.endswith("]")}
    files = sorted({node.partition("::")[0] for node in nodes})
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert nodes - set(collected.stdout.splitlines()) == set()


def test_unit_tests_are_of_no_shared_session() -> None:
    """They run in the process of a session's tests, where the bug is not."""
    files = {one.name: [red.file for red in one.reds] for one in BREAKAGES if one.session is not None}
    assert not [name for name, some in files.items() if any(file.startswith("unit/") for file in some)]


def test_what_they_need_is_told() -> None:
    """A breakage of unit tests needs nothing, one of integration tests does."""
    for one in BREAKAGES:
        live = any(red.file.startswith("integration/") for red in one.reds)
        assert live == (one.needs > Needs.NOTHING), one.name


@pytest.mark.long
def test_every_fault_test_is_shown_red() -> None:
    shown = {(red.file, red.function) for red in REDS}
    for file, names in functions("integration/faults").items():
        assert {name for name in names if (file, name) not in shown} == set(), file


def promises() -> dict[str, set[str]]:
    """Each of those promises, and the tests that are marked with it."""
    shown = defaultdict(set)
    for test in tool("traceability").marked_tests(ROOT):
        for name in test.promises:
            if name.startswith(OF_DELIVERY):
                shown[name].add(test.name)
    return shown


@pytest.mark.long
def test_every_promise_of_an_integration_test_is_shown_broken() -> None:
    live = set().union(*functions("integration").values())
    shown = {red.function for red in REDS}
    rows = [(name, tests) for name, tests in promises().items() if tests & live]
    assert len(rows) > 40
    missing = [name for name, tests in rows if not tests & shown]
    assert missing == []


# -- the judgement over what came of a test

TEST: Final = Red("unit/x.py", "test_y", r"\b[1-9]\d* lost")
WHOLE: Final = replace(breakage("p", "a.f:function", drop("call(...)"), TEST), name="b")


def step(step: str = "call", outcome: str = "failed", *, asserted: bool = True, text: str = "2 lost") -> dict[str, Any]:
    """A line as the plugin writes it."""
    error = None if outcome == "passed" else f"AssertionError: {text}"
    line = {
        "breakage": "b",
        "test": TEST.node,
        "step": step,
        "outcome": outcome,
        "asserted": asserted,
        "text": text,
        "error": error,
    }
    return {**line, "seconds": 1.0}


SETUP: Final = step("setup", "passed")
OTHER: Final = {**step(), "test": f"{TEST.node}[other]"}


@pytest.mark.parametrize(
    ("steps", "outcome"),
    [
        ([SETUP, step()], RED),
        ([SETUP, step(), OTHER], RED),
        ([SETUP, step("call", "passed")], GREEN),
        ([SETUP, step(), {**OTHER, "outcome": "passed"}], GREEN),
        ([SETUP, step(text="0 lost")], OTHERWISE),
        ([SETUP, step(asserted=False)], RED),
        ([SETUP, step(asserted=False, text="0 lost")], OTHERWISE),
        ([step("setup")], OTHERWISE),
        ([SETUP, step("call", "skipped")], ABSENT),
        ([], ABSENT),
        ([{**step(), "test": f"{TEST.node}_too"}], ABSENT),
        ([{**step(), "breakage": "another"}], ABSENT),
    ],
)
def test_a_test_is_red_by_what_says_the_promise_alone(steps: list[dict[str, Any]], outcome: str) -> None:
    assert judged(WHOLE, TEST, steps_of(WHOLE, TEST, steps)).outcome == outcome


def test_without_words_of_its_own_a_test_is_red_by_an_assertion_alone() -> None:
    asked_for_nothing, text = replace(TEST, says=ASSERTED), "E   assert 1 == 2"
    outcomes = [judged(WHOLE, asked_for_nothing, [step(asserted=one, text=text)]).outcome for one in (True, False)]
    assert outcomes == [RED, OTHERWISE]


def test_a_test_that_stays_green_names_its_parameters() -> None:
    steps = [SETUP, step(), {**OTHER, "outcome": "passed"}]
    assert judged(WHOLE, TEST, steps_of(WHOLE, TEST, steps)).words == "[other]"


def test_sessions_are_shared_where_they_may_be_and_the_cheapest_come_first() -> None:
    def one(name: str, needs: Needs, session: str | None = None) -> Breakage:
        return replace(WHOLE, name=name, needs=needs, session=session)

    found = sessions(
        [one("a", Needs.MORE), one("b", Needs.NODE, "x"), one("c", Needs.NODE), one("d", Needs.NODE, "x"), WHOLE]
    )
    assert sorted([one.name for one in some] for some in found[1:3]) == [["b", "d"], ["c"]]
    assert ([one.name for one in found[0]], [one.name for one in found[3]]) == (["b"], ["a"])


def test_what_failed_is_shown() -> None:
    assert judged(WHOLE, TEST, [step(text="x\nE   12 changes: 2 lost, 0 doubled\ny")]).words == (
        "12 changes: 2 lost, 0 doubled"
    )


@pytest.mark.parametrize("file", ["connector/a/f.py", "a/f.py"])
def test_the_mutation_is_put_into_the_module(tmp_path: Path, file: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text("def function():\n    call(1)\n    return 2\n")
    WHOLE.apply(tmp_path)
    assert path.read_text() == "def function():\n    return 2\n"


def test_what_does_not_fit_names_breakage_and_symbol(tmp_path: Path) -> None:
    with pytest.raises(BreakageError, match=r"b in a\.f:function: there is no such module"):
        WHOLE.apply(tmp_path)
