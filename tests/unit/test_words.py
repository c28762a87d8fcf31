"""The check of our words: which names and sentences it finds, and in which lines."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path
from typing import Final

from tests.tools import tool

WORDS: Final = tool("words")


def faults(source: str, empty: str, longest: int = 99) -> list[str]:
    options = {"empty-names": empty.split(), "conventional-parameters": ["before"], "longest-sentence": longest}
    return sorted(fault for _, fault in WORDS.findings(ast.parse(source), options))


NAMES: Final = """
at = 1
class Shelf:
    there = 2
def outer(found, before, /, *places):
    one = found
    for number, (at, _) in []:
        def inner():
            kept = [place for place in (said := [])]
    with open("x") as told:
        self.gone = lambda whole: before
"""


def test_names_are_locals_and_parameters() -> None:
    """Neither those of modules and classes nor attributes, nor parameters with usual names."""
    names = faults(NAMES, "at before found gone kept number one place places said there told whole")
    assert names == [
        *(f"name {name}" for name in ("at", "kept", "number", "one", "place", "said", "told")),
        *(f"parameter {name}" for name in ("found", "places", "whole")),
    ]


SPOKEN: Final = '''"""A module. It has two sentences."""
def f(log, error):
    log.warning("batch %d waits: %s", 1, error)
    raise SettingsError(f"the setting {error} is wrong. Correct it")
    say("nothing is parked")
    option(help="The table.", metavar="not a sentence")
    print("nor this")
    x.error("nor this")
'''


def test_sentences_are_those_that_people_read() -> None:
    assert [fault.partition(": ")[2] for fault in faults(SPOKEN, "", 1)] == [
        "A module", "Correct it", "The table", "nothing is parked", "It has two sentences", "batch %d waits: %s",
        "the setting X is wrong",
    ]  # fmt: skip
    assert faults(SPOKEN, "", 4) == ["5 words: the setting X is wrong"]


def test_lines_are_those_that_the_last_commit_does_not_have(tmp_path: Path) -> None:
    """Committed before, changed since, and new to git; only in the packages."""

    def git(*arguments: str) -> None:
        author = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(("git", *author, *arguments), cwd=tmp_path, check=True, capture_output=True)

    def write(name: str, text: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    git("init")
    assert WORDS.base_of(tmp_path) == ""
    write("common/tailrace_x/a.py", "1\n2\n3\n")
    write("common/tailrace_x/gone.py", "1\n")
    write("tests/tailrace.py", "1\n")
    git("add", ".")
    git("commit", "-m", "first")
    assert WORDS.base_of(tmp_path) == ""
    write("common/tailrace_x/a.py", "1\nnew\nnew\n2\n3\n")
    (tmp_path / "common/tailrace_x/gone.py").unlink()
    git("commit", "-am", "second")
    write("common/tailrace_x/a.py", "1\nnew\nnew\n2\nchanged\n")
    write("common/tailrace_x/below/b.py", "1\n2\n")
    write("tests/tailrace.py", "2\n")
    base = WORDS.base_of(tmp_path)
    assert base
    assert WORDS.added(tmp_path, base) == {"common/tailrace_x/a.py": {2, 3, 5}, "common/tailrace_x/below/b.py": {1, 2}}
    git("update-ref", "refs/remotes/origin/main", "HEAD~1")
    git("commit", "-am", "third")
    assert WORDS.base_of(tmp_path) == base
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    assert WORDS.base_of(tmp_path) not in ("", base)
