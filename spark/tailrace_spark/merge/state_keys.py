"""What the clustering key of a stored state starts with: which kind of state it is, in the order of their reading."""

from __future__ import annotations

from typing import Final

PARTITION: Final = b"\x00"
STATIC: Final = b"\x01"
RANGE: Final = b"\x02"
ROW: Final = b"\x03"
END: Final = b"\x04"
