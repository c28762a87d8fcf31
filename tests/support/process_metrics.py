"""The metrics that every process has, as docs/metrics.md lists them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


def process_metrics() -> list[str]:
    """Their names."""
    document = (ROOT / "docs" / "metrics.md").read_text("utf-8").split("\n## Every process\n")[1]
    return re.findall(r"^\| `(process_\w+)` \|", document, re.MULTILINE)
