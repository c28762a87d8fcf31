"""The page as Chromium shows it: screenshots, and the faults that axe finds."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = os.environ.get("TAILRACE_CHROMIUM", shutil.which("chromium") or "/usr/bin/chromium")
SHOTS = Path(__file__).resolve().parents[3] / "build" / "screenshots"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}}


def looked_at(page: Any, name: str) -> None:
    """Screenshots in light and dark, wide and narrow, without a fault of WCAG AA and without a bar to scroll aside."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install 'tailrace[browser]'")
    SHOTS.mkdir(parents=True, exist_ok=True)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for width in (1280, 360):
            page.set_viewport_size({"width": width, "height": 800})
            page.screenshot(path=SHOTS / f"{name}-{scheme}-{width}.png", full_page=True)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (name, scheme, width)
        results = axe.Axe().run(page, options=RULES)
        assert results.violations_count == 0, f"{name}, {scheme}: {results.generate_report()}"
    page.set_viewport_size({"width": 1280, "height": 800})
    page.emulate_media(color_scheme="light")
