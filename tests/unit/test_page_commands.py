"""Every page and message: the commands, options and settings that it names exist."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main

from tailrace.cli.main import OWN, command_line
from tailrace_common.settings import settings_from
from tailrace_server.sql.parsing import parse
from tests.pages.blocks import blocks, commands
from tests.tools import tool

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
PACKAGES: Final = ("schemas", "common", "connector", "spark")
_ENDS: Final = frozenset({"|", "||", "&&", ";", ">", "2>", "<", "&", "#"})
_GENERAL: Final = frozenset({"-h", "--help", "--version", "--log-level", "--log-format"})


@cache
def program() -> Any:
    """The program with the commands of all packages, as typer's own class."""
    return typer.main.get_command(command_line((*OWN, *tool("commands").announced())))


def named(page: Path) -> Iterator[str]:
    """The command lines of a page: in console blocks, in indented blocks, and in code inside of sentences."""
    text = page.read_text(encoding="utf-8")
    for block in blocks(text):
        if block.language == "console":
            yield from (command.text for command in commands(block.text))
    text = re.sub(r"(?ms)^```.*?^```$", "", text)
    yield from re.findall(r"(?m)^ {4}(tailrace [^#\n]*?)(?: {3,}.*)?$", text)
    yield from re.findall(r"`(tailrace [^`\n]+)`", text)


def calls(line: str) -> Iterator[list[str]]:
    """The words after each `tailrace` of a command line."""
    words = shlex.split(line.replace("\\\n", " "), comments=True)
    while "tailrace" in (names := [word.rpartition("/")[2] for word in words]):
        words = words[names.index("tailrace") + 1 :]
        end = next((index for index, word in enumerate(words) if word in _ENDS), len(words))
        yield words[:end]


def faults(command: Any, words: list[str], options: frozenset[str] = _GENERAL) -> Iterator[str]:
    """What a call names that the program lacks. `a|b` stands for several commands."""
    options |= {option for given in command.params for option in (*given.opts, *given.secondary_opts)}
    members = getattr(command, "commands", {})
    if members and words and not words[0].startswith("-"):
        names = words[0].rstrip(",").split("|")
        if words[0] not in ("...", "COMMAND", "NAME", "X"):
            yield from (f"no command {name}" for name in names if name not in members)
        for name in names:
            if name in members:
                yield from faults(members[name], words[1:], options)
        return
    for word in words:
        option = word.strip("[]").partition("=")[0]
        if re.fullmatch(r"--?[a-z][a-z-]*", option) and option not in options:
            yield f"no option {option}"


def said(source: str) -> Iterator[str]:
    """The command lines in the texts of a module; X stands for what is filled in."""
    for node in ast.walk(ast.parse(source)):
        pieces = node.values if isinstance(node, ast.JoinedStr) else [node]
        text = "".join(str(piece.value) if isinstance(piece, ast.Constant) else "X" for piece in pieces)
        yield from re.findall(r"`(tailrace [^`\n]+)`", text)


def wrong(lines: Iterable[str]) -> dict[str, str]:
    """Faults by command line."""
    return {line: fault for line in lines for words in calls(line) for fault in faults(program(), words)}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_and_options_exist(page: Path) -> None:
    assert wrong(named(page)) == {}


@pytest.mark.slow
def test_the_commands_of_messages_exist() -> None:
    modules = (module for package in PACKAGES for module in (ROOT / package).rglob("*.py"))
    lines = [line for module in modules for line in said(module.read_text(encoding="utf-8"))]
    assert len(lines) > 100
    assert wrong(lines) == {}


def test_most_commands_of_the_program_are_on_a_page() -> None:
    """Otherwise the search above finds too little."""
    assert sum(len(list(calls(line))) for page in PAGES for line in named(page)) > 200


def with_secrets(tree: Any, secret: Path) -> Any:
    """A tree of settings whose files of secrets are that one."""
    if isinstance(tree, dict):
        return {name: with_secrets(value, secret) for name, value in tree.items()}
    return str(secret) if isinstance(tree, str) and tree.startswith("/run/secrets/") else tree


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_settings_exist(page: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("sqlite:///a.db")
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "toml":
            tree = tomllib.loads(block.text)
            if "subscription" not in tree:
                settings_from(with_secrets(tree, secret), f"{page.name}, line {block.line}")


def test_the_statements_of_subscriptions_are_read() -> None:
    page = (ROOT / "docs" / "subscriptions.md").read_text(encoding="utf-8")
    [statements] = [block.text for block in blocks(page) if block.language == "sql"]
    assert len(parse(statements)) > 5


def test_a_wrong_option_command_and_setting_are_found() -> None:
    assert list(faults(program(), ["snapshot", "start", "shop.orders", "--too", "kafka"])) == ["no option --too"]
    assert list(faults(program(), ["offset", "show"])) == ["no command offset"]
    assert list(faults(program(), ["losses", "list|acknowledged"])) == ["no command acknowledged"]
