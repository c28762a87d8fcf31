"""What every sink's settings do where they cannot work: they are refused by their names, and without secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace_common.settings import load_settings
from tailrace_schemas.errors import SettingsError

SECRET = "hunter2"  # noqa: S105 - what must not be seen


def require_refused(directory: Path, kind: str, lines: str, words: str) -> None:
    """Fail unless a section of this type, with these lines, is refused in these words."""
    path = directory / "t.toml"
    path.write_text(f'[sink.x]\ntype = "{kind}"\n{lines}\n', encoding="utf-8")
    with pytest.raises(SettingsError) as raised:
        load_settings(path, {})
    assert words in str(raised.value)
    assert SECRET not in str(raised.value)
