"""What holds for every test of the run."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.held import HOLDS, summary
from tests.properties import load_profile
from tests.service_files import needs_services

load_profile()


LONG_SECONDS = 1200
"""The limit of a test that is marked `long` and has none of its own: such tests wait for minutes themselves."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--hot-path`: only what compiled code can change. `--services`: only what may need services."""
    parser.addoption("--hot-path", action="store_true", help="Only files of tests that reach compiled modules.")
    parser.addoption("--services", action="store_true", help="Only files of tests that may need services.")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Pass over the files that `--hot-path` or `--services` leaves out: to import all of them takes half a minute."""
    if not collection_path.match("test_*.py"):
        return None
    is_left_out = (config.getoption("--hot-path") and collection_path not in _hot_path()) or (
        config.getoption("--services") and not needs_services(collection_path)
    )
    return is_left_out or None


@cache
def _hot_path() -> frozenset[Path]:
    from tests.hot_path import files_of_tests

    return files_of_tests()


def pytest_configure(config: pytest.Config) -> None:
    """Let SIGTERM end the run as Ctrl-C does: fixtures and `atexit` end the servers that it has started.

    End at once where TAILRACE_TEST_SERVICES asks for what is not there: pytest-xdist's workers cannot say why.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if os.environ.get("TAILRACE_TEST_SERVICES") and not hasattr(config, "workerinput"):
        from tests.services.choice import ChoiceError, choose

        try:
            choose(os.environ)
        except ChoiceError as error:
            pytest.exit(str(error), returncode=2)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`-m contract`: what holds sinks to their contracts. Long tests have a long limit."""
    for item in items:
        if item.get_closest_marker("integration") is not None and not needs_services(item.path):
            raise pytest.UsageError(f"{item.path}: mark it in the file or its conftest.py, else --services misses it")
        if item.get_closest_marker("long") is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONG_SECONDS))
        if HOLDS in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.contract)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end which sinks were held to their contracts."""
    reports = [(outcome, one) for outcome, some in terminalreporter.stats.items() for one in some]
    told = [(outcome, one.user_properties) for outcome, one in reports if getattr(one, "when", "") == "call"]
    if lines := summary(told):
        terminalreporter.section("contracts of sinks")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """A command that runs in the test's process sets logging up, to a stream that is closed when its test is over."""
    root = logging.getLogger()
    handlers = list(root.handlers)
    yield
    for handler in set(root.handlers) - set(handlers):
        root.removeHandler(handler)
    for handler in set(handlers) - set(root.handlers):
        root.addHandler(handler)
