"""Write the files that are made from the code, or with --check say which of them are not what the code says."""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Final

import reference
import row_state_picture
import traceability
import typer.main
from typer.testing import CliRunner

from tailrace.cli.main import OWN, command_line
from tailrace_common.cli.program import COMMANDS
from tailrace_common.settings.sample import render_sample

ROOT: Final = Path(__file__).resolve().parent.parent
_HEAD: Final = """\
# Commands

What each command's `--help` says. Written by `make generated` from the code.
"""


def render_commands() -> str:
    """The reference of all commands, Markdown."""
    parts = [_HEAD]
    app = command_line((*OWN, *announced()))
    for words in command_words(typer.main.get_command(app), ()):
        answer = CliRunner(env={"COLUMNS": "110"}).invoke(app, [*words, "--help"], prog_name="tailrace")
        if answer.exit_code:
            raise RuntimeError(f"tailrace {' '.join(words)} --help: exit code {answer.exit_code}")
        parts.append(f"## `{' '.join(('tailrace', *words))}`\n\n```text\n{answer.output.strip()}\n```\n")
    return "\n".join(parts)


def announced() -> list[EntryPoint]:
    """The commands of other packages that pyproject.toml announces, however old the installation is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [EntryPoint(name, value, COMMANDS) for name, value in project["entry-points"][COMMANDS].items()]


def command_words(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The words of a command and of those below it, a group before its members. `command` is typer's own class."""
    yield words
    for name, below in sorted(getattr(command, "commands", {}).items()):
        yield from command_words(below, (*words, name))


def main() -> int:
    """Exit code: 1 when --check finds a difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    stale = 0
    made = {
        "tailrace.toml": render_sample(),
        "docs/commands.md": render_commands(),
        "docs/reference/errors.md": reference.errors(),
        "docs/reference/python.md": reference.python(),
        "docs/reference/settings.md": reference.settings(),
        "docs/row-state.svg": row_state_picture.picture(),
        "docs/traceability.md": traceability.render(ROOT),
    }
    for name, text in made.items():
        path = ROOT / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if check:
            sys.stderr.write(f"{name} is not what the code says: run `make generated`\n")
        else:
            path.write_text(text, encoding="utf-8")
            sys.stderr.write(f"{name} written\n")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
