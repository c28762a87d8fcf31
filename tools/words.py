"""Names that say nothing, and long sentences in what people read, among the lines that a change adds to the packages.

Compared is with the merge base of origin/main, or with the commit before where that is the same or not there; what is
not committed counts. pyproject.toml has the words, and the packages that need comments for rules that they implement.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
_PACKAGES: Final = ":(glob)*/tailrace*/**/*.py"
_LOG_METHODS: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
_READ_BY_PEOPLE: Final = frozenset({"help", "description"})
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_END: Final = re.compile(r"[.!?](?=\s|$)|\n\s*\n")
_WORD: Final = re.compile(r"\S*\w\S*")
_PLACEHOLDER: Final = "X"
_ADDED: Final = re.compile(r"^(?:\+\+\+ b/(.+)|@@ .*\+(\d+)(?:,(\d+))? @@.*)$", re.MULTILINE)

Finding = tuple[range, str]
"""The lines of a name or a text, and what is wrong."""


def findings(tree: ast.AST, options: Mapping[str, Any]) -> Iterator[Finding]:
    """Empty names of locals and parameters, and long sentences; a parameter may have the name of a field."""
    empty, usual = set(options["empty-names"]), {*options["conventional-parameters"], *_fields(tree)}
    for node in ast.walk(tree):
        if isinstance(node, _SCOPES):
            for name in _bound(node):
                if name.id.strip("_") in empty:
                    yield _lines(name), f"name {name.id}"
        elif isinstance(node, ast.arg) and node.arg.strip("_") in empty.difference(usual):
            yield _lines(node), f"parameter {node.arg}"
        for text in _read_by_people(node):
            for sentence in _END.split(_text(text)):
                if len(words := _WORD.findall(sentence)) > options["longest-sentence"]:
                    yield _lines(text), f"{len(words)} words: {' '.join(words)}"


def _fields(tree: ast.AST) -> Iterator[str]:
    """What the classes declare."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            declared = (part.target for part in node.body if isinstance(part, ast.AnnAssign))
            yield from (target.id for target in declared if isinstance(target, ast.Name))


def _bound(scope: ast.AST) -> Iterator[ast.Name]:
    """What a function binds, without the functions in it: by assignment, for, with, walrus or comprehension."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child
        elif not isinstance(child, (*_SCOPES, ast.ClassDef)):
            yield from _bound(child)


def _read_by_people(node: ast.AST) -> Iterator[ast.expr]:
    """Docstrings, log messages, errors and help."""
    if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        if node.body and isinstance(node.body[0], ast.Expr):
            yield node.body[0].value
    elif isinstance(node, ast.Call):
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        is_log = (
            name in _LOG_METHODS and isinstance(called, ast.Attribute) and "log" in ast.unparse(called.value).lower()
        )
        if node.args and (is_log or name == "say" or name.endswith("Error")):
            yield node.args[0]
        yield from (keyword.value for keyword in node.keywords if keyword.arg in _READ_BY_PEOPLE)


def _text(node: ast.expr) -> str:
    """The text of a literal, each value in it as one word; empty for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return "".join(_text(part) or _PLACEHOLDER for part in node.values) if isinstance(node, ast.JoinedStr) else ""


def _lines(node: ast.expr | ast.arg) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def sparse(root: Path, wanted: Mapping[str, float]) -> Iterator[str]:
    """A line for each directory that has fewer comments in a hundred lines than it should."""
    for directory, percent in wanted.items():
        lines = [line for path in (root / directory).rglob("*.py") for line in path.read_text("utf-8").splitlines()]
        share = round(100 * sum(line.strip().startswith("#") for line in lines) / len(lines), 1)
        if share < percent:
            yield (
                f"{directory}: {share} comments in 100 lines; at least {percent}. "
                "Say beside the code why it does so, and whose rule it is"
            )


def base_of(root: Path) -> str:
    """The revision to compare with; empty without git, and in a clone that has one commit only."""
    head = _git(root, "rev-parse", "HEAD")
    candidates = (_git(root, "merge-base", "HEAD", "origin/main"), _git(root, "rev-parse", "--verify", "-q", "HEAD~1"))
    return next((revision for revision in candidates if revision not in ("", head)), "")


def added(root: Path, base: str) -> dict[str, set[int]]:
    """The lines of each module that the revision does not have; modules that git does not know are new as a whole."""
    untracked = _git(root, "ls-files", "--others", "--exclude-standard", "--", _PACKAGES).splitlines()
    lines = {name: set(range(1, 1 + (root / name).read_bytes().count(b"\n"))) for name in untracked}
    changed: set[int] = set()
    prefixes = ("--src-prefix=a/", "--dst-prefix=b/")
    diff = _git(root, "diff", "-U0", "--no-ext-diff", "--no-color", *prefixes, base, "--", _PACKAGES)
    for name, first, count in _ADDED.findall(diff):
        if name:
            changed = lines.setdefault(name, set())
        else:
            changed.update(range(int(first), int(first) + int(count or 1)))
    return lines


def _git(root: Path, *arguments: str) -> str:
    """What git says; empty where it refuses, or is not there."""
    try:
        return subprocess.run(("git", *arguments), cwd=root, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


def main() -> int:
    """The exit code: 1 where an added line has a finding, or comments are too few."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", metavar="REV", help="the revision to compare with")
    asked = parser.parse_args().base
    options = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["words"]
    base = _git(ROOT, "rev-parse", "--verify", "-q", asked) if asked else base_of(ROOT)
    if asked and not base:
        parser.error(f"git knows no revision {asked}")
    if not base:
        print("No earlier commit here: words are not checked", file=sys.stderr)
    faults = list(sparse(ROOT, options["comments"]))
    for name, lines in added(ROOT, base).items() if base else ():
        for where, fault in findings(ast.parse((ROOT / name).read_bytes()), options):
            if not lines.isdisjoint(where):
                faults.append(f"{name}:{where[0]}: {fault}")
    print(*faults, sep="\n", end="\n" if faults else "", file=sys.stderr)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
