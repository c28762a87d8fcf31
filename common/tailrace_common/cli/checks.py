"""What `tailrace check` finds: one thing looked at, and what to do about it. Each half brings its own checks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tailrace_common.settings import Settings


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at: whether it is as it must be, what was found, and what to do (also where it only warns)."""

    name: str
    ok: bool
    detail: str
    advice: str = ""


CheckSource = Callable[[Settings], Iterator[Check]]
"""Looks at one part of what the settings name; never raises for what it finds. Entry points of `tailrace.checks`."""


def judge(name: str, ok: bool, detail: str, advice: str) -> Check:
    """A check whose advice counts only where it fails."""
    return Check(name, ok, detail, "" if ok else advice)


def may_write(path: Path) -> bool:
    """Whether this user may write `path`, or make it where it does not exist yet."""
    nearest = next(candidate for candidate in (path.absolute(), *path.absolute().parents) if os.path.exists(candidate))
    return os.access(nearest, os.W_OK)
