"""The table of docs/howto/upgrade.md has every record that is kept, with the number that the code writes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tailrace_server.meta.migrations import versions
from tests.upgrades.numbers import KEPT, NOT_KEPT, Constant

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/howto/upgrade.md").read_text("utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]
SOURCES = ("schemas", "common", "connector", "spark")
NAMED = re.compile(r"_?([A-Z]+_)*(FORMAT|VERSION)(_[A-Z_]+)?|CUT")


def number(constant: Constant) -> int:
    module, name = constant
    value = getattr(import_module(module), name)
    assert isinstance(value, int)
    return value


def constants() -> Iterator[Constant]:
    """All whole numbers of modules whose name says that they are a form's."""
    for path in (file for source in SOURCES for file in (ROOT / source).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts[1:])
        for node in ast.parse(path.read_text("utf-8")).body:
            if (
                isinstance(node, ast.AnnAssign)
                and isinstance(node.target, ast.Name)
                and NAMED.fullmatch(node.target.id)
                and isinstance(node.value, ast.Constant | ast.Name)
                and (isinstance(node.value, ast.Name) or isinstance(node.value.value, int))
            ):
                yield module, node.target.id


@pytest.mark.parametrize("record", KEPT)
def test_the_page_has_the_number_that_is_written(record: str) -> None:
    [row] = [row for row in ROWS if row[0].startswith(record)]
    assert row[2] == ", ".join(str(number(constant)) for constant in KEPT[record])


def test_the_page_has_the_meta_databases_revision() -> None:
    [row] = [row for row in ROWS if row[0].startswith("the meta database")]
    newest = max(path.stem[1:5] for path in Path(versions.__file__).parent.glob("v*.py"))
    assert row[2] == newest


@pytest.mark.slow
def test_the_page_has_every_number_that_the_code_has() -> None:
    """A new record gets a number, and its row; a row whose record has gone goes."""
    documented = {constant for row in KEPT.values() for constant in row}
    assert set(constants()) == documented | NOT_KEPT.keys()
    assert sum(len(row) == 4 for row in ROWS) == len(KEPT) + 3  # the meta database, and two lines of the head
