"""Modules of tools/, which are on the path only while they run."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Final

import pytest

_TOOLS: Final = Path(__file__).resolve().parents[1] / "tools"


def tool(name: str) -> Any:
    """A module of tools/."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(_TOOLS)
        return importlib.import_module(name)
