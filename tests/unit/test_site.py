"""The site of docs/: its navigation has every page, it builds without a warning, and loads nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.tools import tool

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
GENERATED: Final = tool("reference").PAGES
_ITEM: Final = re.compile(r"\s*([-*]|\d+\.) ")


@pytest.fixture(scope="module")
def navigation() -> list[str]:
    """The pages of the navigation."""
    return list(targets(tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]))


def targets(entry: Any) -> Iterator[str]:
    """The paths of a navigation."""
    if isinstance(entry, str):
        yield entry
    else:
        for below in entry.values() if isinstance(entry, dict) else entry:
            yield from targets(below)


def test_every_page_is_in_the_navigation_once(navigation: list[str]) -> None:
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} | set(GENERATED)
    assert sorted(page for page in navigation if not page.startswith("sources/")) == sorted(pages)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_lists_and_tables_begin_after_an_empty_line(page: Path) -> None:
    """GitHub forgives a missing one; Python-Markdown makes one paragraph of it."""
    previous, is_code = "", False
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        is_code ^= line.startswith("```")
        if not is_code and previous.strip() and not previous.startswith(("#", " ", "```")):
            is_first = bool(_ITEM.match(line)) and not _ITEM.match(previous)
            assert not is_first, f"line {number}: {line}"
            assert previous.startswith("|") or not line.startswith("|"), f"line {number}: {line}"
        previous = line


@pytest.mark.long
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere() -> None:
    """Strict: a link or an anchor that leads nowhere is an error."""
    pytest.importorskip("zensical")
    built = subprocess.run(
        [sys.executable, "tools/docs_site.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    site = ROOT / "build" / "site"
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    assert [name for name in GENERATED if (site / name).with_suffix(".html") not in pages] == []
    loaded = re.compile(
        r"<(?:script|img|iframe|source)[^>]* src=\"?(?:https?:)?//|<link[^>]* href=\"?(?:https?:)?//|class=\"?mermaid"
    )
    assert {
        str(page.relative_to(site)): loaded.findall(page.read_text("utf-8"))
        for page in pages
        if loaded.search(page.read_text("utf-8"))
    } == {}
