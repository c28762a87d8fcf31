"""A plugin of pytest: runs each test under the breakages that it has to notice, and notes what came of it.

TAILRACE_PLAN names a JSON file: of each breakage the tests, where its sources are, and variables of the environment.
Only processes that a test starts meet them there: the test itself stays sound, and so do the services that it shares.
TAILRACE_OUTCOMES names the file that gets a JSON line of each step of a test: its set-up, its call, its tear-down.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

_PLAN: Final[dict[str, dict[str, Any]]] = json.loads(Path(os.environ["TAILRACE_PLAN"]).read_text("utf-8"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test once under each breakage that names it."""
    file = metafunc.definition.path.relative_to(metafunc.config.rootpath)
    function = "::".join([str(file), *([metafunc.cls.__name__] if metafunc.cls else []), metafunc.function.__name__])
    names = [name for name, one in _PLAN.items() if function in {node.partition("[")[0] for node in one["tests"]}]
    metafunc.parametrize("breakage", names, indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test's own parameters only those that a breakage names, where it names some."""
    wanted = []
    for item in items:
        name, node = _place(item)
        tests = _PLAN.get(name, {"tests": ()})["tests"]
        if any(node == test or node.startswith(f"{test}[") for test in tests):
            wanted.append(item)
    items[:] = wanted


@pytest.fixture(autouse=True)
def breakage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test starts has the breakage in it."""
    one = _PLAN[request.param]
    for name, value in {"PYTHONPATH": one["path"], **one["environment"]}.items():
        monkeypatch.setenv(name, value)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note how a step ended."""
    report = yield
    raised = None if call.excinfo is None else call.excinfo.value
    name, node = _place(item)
    line = {
        "breakage": name,
        "test": node,
        "step": report.when,
        "outcome": report.outcome,
        "asserted": isinstance(raised, AssertionError | pytest.fail.Exception),
        "error": None if raised is None else f"{type(raised).__name__}: {raised}"[:2000],
        "text": report.longreprtext,
        "seconds": round(report.duration, 1),
    }
    with Path(os.environ["TAILRACE_OUTCOMES"]).open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(line)}\n")
    return report


def _place(item: pytest.Item) -> tuple[str, str]:
    """The breakage's name, and the test's own without it."""
    assert isinstance(item, pytest.Function)
    name = str(item.callspec.params["breakage"])
    function, _, parameters = item.nodeid.partition("[")
    own = parameters.removesuffix("]").replace(f"-{name}", "").replace(f"{name}-", "").removeprefix(name)
    return name, f"{function}[{own}]" if own else function
