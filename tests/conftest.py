"""What holds for every test of the run."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace_common.cli.logs import PACKAGES
from tests.held import HOLDS, summary
from tests.parts import PATTERNS, SPINE, SPINE_MARK, TESTS, UNIT, may_have, part_of
from tests.properties import load_profile
from tests.times import Times

if TYPE_CHECKING:
    from tests.support.otlp import OtlpReceiver

load_profile()
gc.disable()  # until all are collected: what that makes stays, and would be looked through a hundred times


LONG_SECONDS = 1200
"""The limit of a test that is marked `long` and has none of its own: such tests wait for minutes themselves."""


FOLDERS_WITHOUT_UNIT_TESTS = [TESTS / "integration", TESTS / "field"]
"""What their conftest.py imports takes seconds."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--part`: the tests of one part alone. `--times`: what each test costs."""
    parser.addoption("--part", choices=[UNIT, SPINE, *PATTERNS], help="Only this part, see tests/parts.py.")
    parser.addoption("--times", type=Path, help="Append what each test costs to this file, as JSON lines.")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Pass over the files that have nothing of the part."""
    part = config.getoption("--part")
    if part == UNIT and collection_path in FOLDERS_WITHOUT_UNIT_TESTS:
        return True
    is_left_out = part is not None and collection_path.match("test_*.py") and not may_have(collection_path, part)
    return is_left_out or None


def pytest_configure(config: pytest.Config) -> None:
    """Let SIGTERM end the run as Ctrl-C does: fixtures and `atexit` end the servers that it has started. A shell's jobs
    in the background ignore Ctrl-C's signal, unless it is asked for.

    End at once where TAILRACE_TEST_SERVICES asks for what is not there: pytest-xdist's workers cannot say why.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    path = config.getoption("--times")
    if path is not None and (hasattr(config, "workerinput") or not config.getoption("numprocesses", None)):
        config.pluginmanager.register(Times(path))
    if os.environ.get("TAILRACE_TEST_SERVICES") and not hasattr(config, "workerinput"):
        from tests.services.choice import ChoiceError, choose

        try:
            choose(os.environ)
        except ChoiceError as error:
            pytest.exit(str(error), returncode=2)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`--part` keeps that part, `-m contract` what holds sinks to their contracts. Long tests have a long limit."""
    for item in items:
        if item.get_closest_marker("long") is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONG_SECONDS))
        if HOLDS in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.contract)

    part = config.getoption("--part")
    if part is not None:
        parts = {item: _part(item) for item in items}
        config.hook.pytest_deselected(items=[item for item in items if parts[item] != part])
        items[:] = [item for item in items if parts[item] == part]


def pytest_collection_finish() -> None:
    """Collect garbage from here on: of what the tests make."""
    gc.freeze()
    gc.enable()


def _part(item: pytest.Item) -> str:
    marks = {mark.name for mark in item.iter_markers()}
    is_spine = "spine" in marks and "long" not in marks
    if is_spine and SPINE_MARK not in item.path.read_text("utf-8"):
        raise pytest.UsageError(f"{item.path}: mark it in the file, else --part {SPINE} misses it")
    return part_of(item.path, in_gate=is_spine or not marks & {"integration", "long"}, integration=is_spine)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end which sinks were held to their contracts."""
    reports = [(outcome, one) for outcome, some in terminalreporter.stats.items() for one in some]
    told = [(outcome, one.user_properties) for outcome, one in reports if getattr(one, "when", "") == "call"]
    if lines := summary(told):
        terminalreporter.section("contracts of sinks")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    """What gets the spans of the test, over OpenTelemetry's protocol."""
    from tests.support.otlp import OtlpReceiver

    with OtlpReceiver() as receiver:
        yield receiver


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """A command that runs in the test's process sets logging up, to a stream that is closed when its test is over."""
    root = logging.getLogger()
    handlers = list(root.handlers)
    levels = {logger: logger.level for logger in (root, *map(logging.getLogger, PACKAGES))}
    yield
    for logger, level in levels.items():
        logger.setLevel(level)
    for handler in set(root.handlers) - set(handlers):
        root.removeHandler(handler)
    for handler in set(handlers) - set(root.handlers):
        root.addHandler(handler)
