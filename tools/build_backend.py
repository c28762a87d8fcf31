"""setuptools' build backend, which requires mypyc wherever the build is going to compile."""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from compilation import Compilation, closing_line, compiler_problem, requested
from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
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
# The version that checks the code in development compiles it too.
_COMPILER: Final = ["mypy[mypyc]==2.4.1"]


def _compiler(*, editable: bool) -> list[str]:
    wish = requested(os.environ, editable=editable)
    if wish is Compilation.WHERE_POSSIBLE:
        return [] if compiler_problem() else _COMPILER
    return _COMPILER if wish is Compilation.REQUIRED else []


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """setuptools' wheel. The last line of the build's output says whether its code is compiled."""
    wheel = str(build_meta.build_wheel(wheel_directory, config_settings, metadata_directory))
    sys.stderr.write(closing_line(wheel, os.environ) + "\n")
    return wheel


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """setuptools' own needs, and mypyc where this build compiles."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_compiler(editable=False)]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """setuptools' own needs, and mypyc where this build compiles."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *_compiler(editable=True)]
