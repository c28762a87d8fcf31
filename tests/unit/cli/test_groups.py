"""The help of groups: every command under a heading, no summary cut; options of logging wherever they stand."""

from __future__ import annotations

import logging

import pytest
from typer.testing import CliRunner

from tailrace.cli.groups import HEADINGS
from tailrace.cli.main import complete
from tailrace_common.cli.program import logging_first


def test_every_command_has_a_heading() -> None:
    shown = CliRunner().invoke(complete(), ["--help"]).output
    assert [f"\n{heading}:\n" in shown for heading in HEADINGS] == [True] * len(HEADINGS)
    assert "Others:" not in shown
    assert "Commands:" not in shown


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["local"], ["generations"], ["sink-letters"]], ids=" ".join)
def test_no_summary_is_cut(words: list[str]) -> None:
    assert "..." not in CliRunner().invoke(complete(), [*words, "--help"]).output.partition("Options:")[2]


@pytest.mark.parametrize(
    ("words", "ordered"),
    [
        (["agent", "--log-level", "debug", "-c", "x"], ["--log-level", "debug", "agent", "-c", "x"]),
        (["agent", "--log-format=json"], ["--log-format=json", "agent"]),
        (["--log-level", "info", "agent"], ["--log-level", "info", "agent"]),
        (["token", "--", "--log-level", "x"], ["token", "--", "--log-level", "x"]),
        (["agent", "--log-level"], ["--log-level", "agent"]),
        ([], []),
    ],
)
def test_options_of_logging_come_first(words: list[str], ordered: list[str]) -> None:
    assert logging_first(words) == ordered


@pytest.mark.slow
def test_a_command_takes_options_of_logging() -> None:
    root, package = logging.getLogger(), logging.getLogger("tailrace")
    handlers, level, own = list(root.handlers), root.level, package.level
    try:
        answer = CliRunner().invoke(complete(), ["token", "0001", "--log-level", "error"])
        assert (answer.exit_code, package.level) == (0, logging.ERROR)
    finally:
        root.handlers[:], root.level, package.level = handlers, level, own
    assert CliRunner().invoke(complete(), ["token", "--log-level", "loud", "00"]).exit_code == 2


def test_the_shell_completes_commands() -> None:
    environ = {"_TAILRACE_COMPLETE": "complete_bash", "COMP_WORDS": "tailrace off", "COMP_CWORD": "1"}
    assert CliRunner(env=environ).invoke(complete(), [], prog_name="tailrace").output.strip() == "offsets"
