"""Hooks of mkdocs for the site of docs/: anchors as on GitHub, whole folders in the navigation, links to sources.

Pages that are made from the code are in the site only.
A link that leaves docs/ leads to a page that shows the file. One to a test or a directory becomes plain text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify
from reference import PAGES

ROOT: Final = Path(__file__).resolve().parent.parent
DOCS: Final = ROOT / "docs"
SOURCES: Final = "sources"
"""The folder of the site that has files from outside of docs/."""
ALWAYS: Final = ("CHANGELOG.md", "CONTRIBUTING.md")
_LINK: Final = re.compile(r"\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
_LANGUAGES: Final = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".cql": "sql"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Anchors as GitHub makes them, which test_docs.py checks too; the pages of folders in the navigation."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    if config.nav is not None:
        config.nav = list(_expanded(config.nav))
    return config


def _expanded(entries: list[Any]) -> Iterator[Any]:
    """The navigation, each folder as the list of its pages; a folder without pages is left out."""
    for entry in entries:
        if isinstance(entry, dict):
            ((title, target),) = entry.items()
            if isinstance(target, list):
                yield {title: list(_expanded(target))}
            elif target.endswith("/"):
                pages = sorted((DOCS / target).glob("*.md"), key=lambda page: (page.name != "README.md", page.name))
                if pages:
                    yield {title: [str(page.relative_to(DOCS)) for page in pages]}
            else:
                yield entry
        else:
            yield entry


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages made from the code, and one for each file outside of docs/ that a page links to or ALWAYS has."""
    waiting = [(name, page()) for name, page in PAGES.items()]
    for name, text in waiting:
        files.append(File.generated(config, name, content=text))
    waiting += [(page.relative_to(DOCS).as_posix(), page.read_text("utf-8")) for page in DOCS.rglob("*.md")]
    waiting.append(("index.md", "".join(f"[{name}](../{name})" for name in ALWAYS)))
    while waiting:
        source, text = waiting.pop()
        for match in _LINK.finditer(text):
            target = _target(source, match[2])
            path = None if target is None else _shown(target)
            if path is not None and files.get_file_from_path(_page_of(path)) is None:
                shown = _page_text(path)
                files.append(File.generated(config, _page_of(path), content=shown))
                waiting.append((_page_of(path), shown))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leads links that leave docs/ to the pages of those files."""
    del config, files
    source = page.file.src_uri

    def led(match: re.Match[str]) -> str:
        target = _target(source, match[2])
        if target is None:
            return match[0]
        if target == ROOT / "README.md":
            destination = "index.md"
        elif target.is_relative_to(DOCS):
            destination = target.relative_to(DOCS).as_posix()
        elif path := _shown(target):
            destination = _page_of(path)
        else:
            return match[1]
        link = os.path.relpath(destination, PurePosixPath(source).parent)
        return f"[{match[1]}]({link}{match[3] or ''})"

    return _LINK.sub(led, markdown)


def _target(source: str, link: str) -> Path | None:
    """The file that a link leads to; None where it stays as it is: from docs/ to docs/, or to another site."""
    if not link or "://" in link or link.startswith("mailto:"):
        return None
    is_of_docs = not source.startswith(f"{SOURCES}/")
    start = DOCS / source if is_of_docs else ROOT / PurePosixPath(source).relative_to(SOURCES)
    target = Path(os.path.normpath(start.parent / link))
    return None if is_of_docs and target.is_relative_to(DOCS) else target


def _shown(target: Path) -> Path | None:
    """The file, if it gets a page: tests, directories and the README, whose page is the site's first one, do not."""
    outside = target.is_relative_to(ROOT) and not target.is_relative_to(DOCS)
    if not outside or not target.is_file() or target == ROOT / "README.md":
        return None
    return None if target.is_relative_to(ROOT / "tests") else target


def _page_of(path: Path) -> str:
    name = path.relative_to(ROOT).as_posix()
    return f"{SOURCES}/{name.removesuffix('.md')}.md"


def _page_text(path: Path) -> str:
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        return text
    return f"# {path.name}\n\n```{_LANGUAGES.get(path.suffix, 'text')}\n{text}\n```\n"
