"""The page of all commands, from their help."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Final

import typer.main

from tailrace.cli.main import OWN, command_line
from tailrace_common.cli.program import COMMANDS

ROOT: Final = Path(__file__).resolve().parent.parent


def commands() -> str:
    """The reference of all commands, Markdown."""
    program = typer.main.get_command(command_line((*OWN, *announced())))
    return "# Commands\n\nWhat each command's `--help` says.\n" + "".join(_helps(program, "tailrace", None))


def _helps(command: Any, name: str, above: Any) -> Iterator[str]:
    """The help of a command and of those below it, a group before its members. Typer has the types to itself."""
    context = command.make_context(name, [], above, resilient_parsing=True, terminal_width=80)
    yield f"\n## `{context.command_path}`\n\n```text\n{context.get_help()}\n```\n"
    for word, below in sorted(getattr(command, "commands", {}).items()):
        yield from _helps(below, word, context)


def announced() -> list[EntryPoint]:
    """The commands of other packages that pyproject.toml announces, however old the installation is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [EntryPoint(name, value, COMMANDS) for name, value in project["entry-points"][COMMANDS].items()]
