"""setuptools' build backend, which asks for mypyc only where TAILRACE_COMPILE=1 wants compiled code."""

from __future__ import annotations

import os
from typing import Any, Final

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]
# The same mypy as the dev extra's: what checks the code compiles it.
_COMPILER: Final = ["mypy[mypyc]==2.4.1"] if os.environ.get("TAILRACE_COMPILE") == "1" else []


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """setuptools' own needs, and the compiler's."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_COMPILER]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """setuptools' own needs, and the compiler's."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *_COMPILER]
