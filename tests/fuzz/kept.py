"""What several modules of tests share of layers."""

from __future__ import annotations

from pathlib import Path

CASES = sorted((Path(__file__).parent / "cases").glob("*.bin"))
