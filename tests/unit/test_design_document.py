"""docs/design.md: the modules that it names exist; the glossary is short enough to be read."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
WALKS = (ROOT / "docs" / "walks.md").read_text(encoding="utf-8")
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")


def layout_paths() -> set[str]:
    """What the layout lists below each of its package's lines, as paths; of lines with several columns the first."""
    paths, root = set(), ""
    for line in DESIGN.partition("## 3. The layout")[2].partition("\n\n**")[0].splitlines():
        depth, names = re.match(r" *", line), re.match(r" {4,6}((?:[\w.]+(?:/\w+)*/? ?)+)(?: {2,}|$)", line)
        if depth and names and len(depth[0]) == 4:
            root = names[1].split()[0]
            paths.add(root)
        elif names:
            paths |= {root + name for name in names[1].split()}
    return paths


def test_the_layout_exists() -> None:
    paths = layout_paths()
    assert len(paths) > 60
    assert {path for path in paths if not (ROOT / path).exists()} == set()


def test_the_modules_that_newcomers_look_for_exist() -> None:
    modules = set(re.findall(r"`(\w+/[\w/]+\.py)`", DESIGN))
    assert len(modules) > 15
    assert {module for module in modules if not (ROOT / module).is_file()} == set()


@pytest.mark.parametrize("section", re.findall(r"## [^\n]*\n\n(\|.*?)(?:\n\n|$)", GLOSSARY, re.DOTALL))
def test_the_words_of_the_glossary_are_sorted_into_short_rows(section: str) -> None:
    for row in section.splitlines()[2:]:
        _, word, meaning, _ = row.split("|")
        assert word.strip()
        assert all(len(sentence.split()) <= 25 for sentence in re.split(r"[.;] ", meaning)), row


def test_the_glossary_has_sixty_words_at_most() -> None:
    assert len(re.findall(r"(?m)^\| (?!word|class|---)", GLOSSARY)) <= 60


def test_the_classes_of_the_glossary_exist() -> None:
    rows = re.findall(r"(?m)^\| (`\w+`(?:, `\w+`)*) \|", GLOSSARY.partition("## Classes")[2])
    named = {name for row in rows for name in re.findall(r"\w+", row)}
    assert len(named) > 5
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "spark").rglob("*.py"))
    assert named <= set(re.findall(r"(?m)^class (\w+)", sources))


def names_in(module: Path) -> set[str]:
    """The functions, classes and methods of a module, as `name` and `Class.method`."""
    names: set[str] = set()
    for definition in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(definition, ast.ClassDef):
            methods = (inner.name for inner in definition.body if isinstance(inner, ast.FunctionDef))
            names |= {definition.name, *(f"{definition.name}.{method}" for method in methods)}
        elif isinstance(definition, ast.FunctionDef):
            names.add(definition.name)
    return names


@pytest.mark.parametrize("walk", WALKS.split("\n## ")[1:], ids=lambda walk: walk.partition(":")[0].partition("\n")[0])
def test_each_hop_of_a_walk_exists(walk: str) -> None:
    hops = re.findall(r"(?m)^\| \d+ \| `([^`]+)` \| `([^`]+)` \|", walk)
    assert {(module, name) for module, name in hops if name not in names_in(ROOT / module)} == set()
    promised = re.findall(r"(\d+) (?:hops|as the agent's own)", walk)
    assert len(hops) == sum(map(int, promised))
