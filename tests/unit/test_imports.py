"""What tests share is in modules of its own: nothing is imported from a module of tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_IMPORT: Final = re.compile(r"^\s*(?:from|import)\s+tests\b.*(?<!as )\btest_.*", re.MULTILINE)


def test_nothing_is_imported_from_a_module_of_tests() -> None:
    files = (file for folder in ("tests", "benchmarks", "tools", "examples") for file in (_ROOT / folder).rglob("*.py"))
    imports = {str(file.relative_to(_ROOT)): _IMPORT.findall(file.read_text(encoding="utf-8")) for file in files}
    assert imports["tests/unit/test_imports.py"] == []
    assert {file: lines for file, lines in imports.items() if lines} == {}
