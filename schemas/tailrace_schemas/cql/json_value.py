"""Values as JSON has them (docs/change-json.md)."""

from __future__ import annotations

import struct
from math import isfinite, isnan
from typing import Final

# The bits of the NaN that "nan" stands for; others say theirs.
_NAN: Final = struct.pack(">d", float("nan"))


def plain(value: object) -> object:
    """A value of an Avro record as JSON has it: bytes as hexadecimal digits, floats that are no number as their names.

    A NaN with other bits than the usual ones is `nan:` and its 16 hexadecimal digits.
    """
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not isfinite(value):
        return _name_of(value)
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def _name_of(value: float) -> str:
    bits = struct.pack(">d", value)
    return f"nan:{bits.hex()}" if isnan(value) and bits != _NAN else str(value)
