"""The page of the tests that show each promise, from the marks of the tests and the pages that promise."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

PAGES: Final = ("guarantees.md", "comparison.md")
"""The pages of docs/ that promise: a row of a table is a promise."""
MARK: Final = "promise"
CASES: Final = "tests/promises.toml"
"""The cases of promises that have several, by the anchors of their rows."""
_ROW: Final = re.compile(r'^\| <a id="([^"]+)"></a>(.*?) \|', re.MULTILINE)
_HEAD: Final = """\
# Traceability

The tests that fail when a promise of [guarantees.md](guarantees.md) or a row of [comparison.md](comparison.md) is
broken: those that are marked `@pytest.mark.promise("NAME")`. `make test-all` runs them all; (long) ones take minutes.

The tests below `tests/integration/faults` run real Cassandra and Kafka. Each ends with the same judgement
(`tests/integration/faults/oracle.py`):

- Every segment has a hard link, made before its release. It is decoded apart from the agent, under the definitions that
  the test itself made.
- The `read_committed` records in Kafka must be these changes, each once, in the order of the log in each partition.
  They are compared by position and by a digest of all that they hold.

How it is known that these tests can fail: `tests/breakages` has a table of small plausible bugs. Each has the promise
that it breaks, the tests that must go red by it, and what their failure must say.

- `make breakages` puts each bug into a copy of the sources and runs its tests on that, with real services. It takes an
  hour or two. `ARGS=the-spool-is-not-read-back` runs one of them, `ARGS=--list` lists them.
- It prints a table, or JSON lines: breakage, test, outcome, seconds. A test that passes all the same is STILL GREEN.
  One that fails by anything but an assertion about the promise does not count.
- `make test-all` asserts that each breakage still fits the sources. It asserts that there is one for every test below
  `tests/integration/faults`, and for every promise `agent.*` and `others.*` that a test with real services shows.
"""


@dataclass(frozen=True, slots=True)
class Promise:
    """A row: its anchor, its words, and the names of its cases, by which tests are marked."""

    anchor: str
    words: str
    cases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MarkedTest:
    """A test function, or a class of tests; `file` is relative to the tree's root."""

    file: str
    name: str
    long: bool
    promises: tuple[str, ...]


def promised(root: Path) -> dict[str, list[Promise]]:
    """The promises of each page, in order. One without cases is its only case, under its anchor's name."""
    cases = tomllib.loads((root / CASES).read_text(encoding="utf-8"))
    return {
        page: [
            Promise(anchor, words, tuple(cases.get(anchor, [anchor])))
            for anchor, words in _ROW.findall((root / "docs" / page).read_text(encoding="utf-8"))
        ]
        for page in PAGES
    }


@cache
def marked_tests(root: Path) -> tuple[MarkedTest, ...]:
    """Every test that is marked with promises, by file and place."""
    files = sorted({*(root / "tests").rglob("test_*.py"), *(root / "tests").rglob("*_contract.py")})
    return tuple(test for file in files for test in _of_file(file, str(file.relative_to(root))))


def _of_file(path: Path, name: str) -> Iterator[MarkedTest]:
    tree = ast.parse(path.read_bytes())
    whole = any(isinstance(node, ast.Assign) and "mark.long" in ast.unparse(node) for node in tree.body)
    for node in tree.body:
        yield from _of_node(node, name, long=whole)
        if isinstance(node, ast.ClassDef):
            long = whole or _is_long(node)
            for method in node.body:
                yield from _of_node(method, name, long=long)


def _of_node(node: ast.stmt, file: str, *, long: bool) -> Iterator[MarkedTest]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        names = tuple(name for mark in node.decorator_list for name in _promises(mark))
        if names:
            yield MarkedTest(file, node.name, long or _is_long(node), names)


def _is_long(node: ast.FunctionDef | ast.ClassDef) -> bool:
    return any(ast.unparse(mark) == "pytest.mark.long" for mark in node.decorator_list)


def _promises(mark: ast.expr) -> Iterator[str]:
    if isinstance(mark, ast.Call) and ast.unparse(mark.func) == f"pytest.mark.{MARK}":
        yield from (ast.literal_eval(argument) for argument in mark.args)


def render(root: Path) -> str:
    """The page, Markdown."""
    shown: dict[str, list[MarkedTest]] = {}
    for test in marked_tests(root):
        for name in test.promises:
            shown.setdefault(name, []).append(test)
    parts = [_HEAD]
    for page, promises in promised(root).items():
        parts.append(f"## {page}\n")
        for promise in promises:
            parts.append(f"**{promise.words}**\n\n| case | tests |\n| --- | --- |")
            parts += [f"| `{name}` | {', '.join(map(_shown, shown.get(name, ())))} |" for name in promise.cases]
            parts.append("")
    return "\n".join(parts)


def _shown(test: MarkedTest) -> str:
    return f"`{test.file}::{test.name}`{' (long)' if test.long else ''}"


__all__ = ["CASES", "MARK", "PAGES", "MarkedTest", "Promise", "marked_tests", "promised", "render"]
