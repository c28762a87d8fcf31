"""`tailrace check` of the installation: which code runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tailrace_common.build import PURE_ADVICE, compiled_sources, describe
from tailrace_common.cli.checks import Check
from tailrace_common.settings import Settings


def check_code(_settings: Settings, sources: Mapping[str, str] | None = None) -> Iterator[Check]:
    """Compiled or pure Python: the same changes, at another price. `sources` are those that were compiled."""
    sources = compiled_sources() if sources is None else sources
    yield Check("code", True, describe(sources), "" if sources else f"pure Python: {PURE_ADVICE}")
