"""A plugin of pytest: what came of each test, one JSON line each, in the file that TAILRACE_OUTCOMES names."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note how a step of a test ended: its set-up, its call, its tear-down."""
    report = yield
    raised = None if call.excinfo is None else call.excinfo.value
    line = {
        "test": item.nodeid,
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
