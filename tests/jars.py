"""The jars that tests alone start or compare with, in a lock of their own: none of them is part of the installation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from tailrace_common.java.jars import fetch_sets

LOCK: Final = Path(__file__).with_name("jars.lock.json")
"""Written by tools/lock_jars.py."""
SETS: Final = frozenset(json.loads(LOCK.read_text(encoding="utf-8"))["sets"])


def fetch_test_sets(*sets: str) -> tuple[Path, ...]:
    """As `fetch_sets`, for sets of the tests' lock."""
    return fetch_sets(*sets, lock=LOCK)
