"""The pages: their links lead somewhere, and few of their sentences are long."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = sorted(
    [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
)
MOST_WORDS: Final = 25
MOST_LONG: Final = 0.05
"""The share of a page's sentences that may be longer."""


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"(?m)^#+ (.*)$", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def sentences(text: str) -> Iterator[str]:
    """The sentences outside of blocks of code; each cell of a table is a text of its own."""
    text = re.sub(r"(?ms)^```.*?^```$|^ {4}\S.*?$", "", text)
    text = re.sub(r"(?m)^\|.*$", lambda row: "\n\n" + row[0].replace("|", "\n\n"), text)
    text = re.sub(r"(?m)^(#.*|\s*([-*]|\d+\.) )", r"\n\n\1", text)
    text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "X", text))
    for paragraph in re.split(r"\n\s*\n", text):
        yield from filter(str.strip, re.split(r"(?<=[.!?])\s+", paragraph))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not link.startswith(("http://", "https://")):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_few_sentences_are_long(page: Path) -> None:
    counted = [len(re.findall(r"\S*\w\S*", sentence)) for sentence in sentences(page.read_text(encoding="utf-8"))]
    assert sum(words > MOST_WORDS for words in counted) <= MOST_LONG * len(counted)
