"""Builds the site of docs/ by Zensical, into build/site: `python tools/docs_site.py`, which `make docs` calls.

Pages that are made from the code are in the site only.
A link that leaves docs/ leads to a page that shows the file. One to a test or a directory becomes plain text.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Final

from reference import PAGES

ROOT: Final = Path(__file__).resolve().parent.parent
DOCS: Final = ROOT / "docs"
GATHERED: Final = ROOT / "build" / "site-pages"
"""All pages of the site, as zensical.toml finds them."""
SOURCES: Final = "sources"
"""The folder of the site that has files from outside of docs/."""
ALWAYS: Final = ("CHANGELOG.md", "CONTRIBUTING.md")
_LINK: Final = re.compile(r"\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
_LANGUAGES: Final = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".cql": "sql"}


def main() -> int:
    """Gather the pages and build; Zensical's exit code, which is 1 for a link or an anchor that leads nowhere."""
    shutil.rmtree(GATHERED, ignore_errors=True)
    shutil.copytree(DOCS, GATHERED, ignore=shutil.ignore_patterns("*.json"))
    for name, text in pages().items():
        target = GATHERED / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_led(name, text), "utf-8")
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--strict", "--clean"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode  # noqa: S603 - our own arguments


def pages() -> dict[str, str]:
    """Each page of the site: of docs/, made from the code, of ALWAYS, and of other files that a page links to."""
    gathered = {page.relative_to(DOCS).as_posix(): page.read_text("utf-8") for page in DOCS.rglob("*.md")}
    gathered |= {name: page() for name, page in PAGES.items()}
    waiting = [*gathered.items(), ("index.md", "".join(f"[{name}](../{name})" for name in ALWAYS))]
    while waiting:
        source, text = waiting.pop()
        for match in _LINK.finditer(text):
            target = _target(source, match[2])
            path = None if target is None else _shown(target)
            if path is not None and _page_of(path) not in gathered:
                gathered[_page_of(path)] = _page_text(path)
                waiting.append((_page_of(path), gathered[_page_of(path)]))
    return gathered


def _led(source: str, text: str) -> str:
    """The text of a page, with links that leave docs/ to the pages of those files."""

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

    return _LINK.sub(led, text)


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


if __name__ == "__main__":
    sys.exit(main())
