"""The form of the small notes beside Spark's checkpoint: JSON objects with a format."""

from __future__ import annotations

import json
from typing import Any, Final

from tailrace_schemas.formats import require_format

FORMAT: Final = 1


def encode_note(**members: object) -> str:
    """The text of a note."""
    return json.dumps({"format": FORMAT, **members}, sort_keys=True)


def decode_note(text: str, name: str) -> dict[str, Any]:
    """The members of a note. Raises SettingsError for another format, and ValueError for what is no note."""
    note = json.loads(text)
    if not isinstance(note, dict):
        raise ValueError(f"tailrace/{name} in the checkpoint is no JSON object")
    record = f"tailrace/{name} in stream.checkpoint"
    require_format(record, note.get("format"), FORMAT, otherwise=", or set another stream.checkpoint")
    return note
