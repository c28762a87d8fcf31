"""Which files of tests may need services: `make integration` collects these alone, as importing all takes a minute."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).resolve().parent
INTEGRATION: Final = TESTS / "integration"
_MARK: Final = "mark.integration"


def needs_services(path: Path) -> bool:
    """Whether a test of the file may be marked `integration`: by its own text, or by a fixture that it names.

    Fixtures count whose parameters have the mark, and those that take such a fixture, in the conftest files above.
    `tests/conftest.py` refuses marks that come from anywhere else.
    """
    if path.is_relative_to(INTEGRATION):
        return True
    text = path.read_text("utf-8")
    folders = [folder for folder in path.parents if folder.is_relative_to(TESTS)]
    names = {name for folder in folders for name in _fixtures(folder / "conftest.py")}
    return _MARK in text or any(re.search(rf"\b{name}\b", text) for name in names)


@cache
def _fixtures(path: Path) -> frozenset[str]:
    text = path.read_text("utf-8") if path.exists() else ""
    if _MARK not in text:
        return frozenset()
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    marked = {one.name for one in functions if any(_MARK in ast.unparse(mark) for mark in one.decorator_list)}
    while more := {one.name for one in functions if marked & set(_arguments(one))} - marked:
        marked |= more
    return frozenset(marked)


def _arguments(function: ast.FunctionDef) -> Iterable[str]:
    return (argument.arg for argument in function.args.args)
