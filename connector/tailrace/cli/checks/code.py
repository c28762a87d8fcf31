"""`tailrace check` of the installation: which code runs."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace_common.build import PURE_ADVICE, compiled_sources, describe
from tailrace_common.cli.checks import Check
from tailrace_common.settings import Settings


def check_code(_settings: Settings) -> Iterator[Check]:
    """Compiled or pure Python: the same changes, at another price."""
    yield Check("code", True, describe(), "" if compiled_sources() else f"pure Python: {PURE_ADVICE}")
