"""What records that outlive a process have in common: the number of their form, and compression of large values."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import Any, Final

from tailrace_schemas.errors import SettingsError

# Below this a reader without our package sees plain JSON; few definitions are larger.
_PLAIN: Final = 64 << 10
_MAGIC: Final = b"\x1f\x8b"
_WITH_GZIP_HEADER: Final = 31

MOST_UNPACKED: Final = 64 << 20
"""The most bytes that a value may have uncompressed. Readers refuse more: a short record could take all memory."""


def require_format(
    record: str,
    number: object,
    supported: int,
    *,
    otherwise: str = "",
    error: Callable[[str], Exception] = SettingsError,
) -> None:
    """Raises `error` for another form than the `supported` one, be it later, earlier or no number.

    `record` names the record and where it is, as a sentence begins. `otherwise` is what the sentence's end offers
    besides the version that wrote it.
    """
    if number != supported:
        raise error(
            f"{record} was written by another version of Tailrace (format {number}; this one reads {supported}). "
            f"Install that version{otherwise}"
        )


def packed(value: bytes) -> bytes:
    """Large values of our internal topics: JSON as it is, or compressed (docs/contracts.md section 1, "Large
    records").

    The value itself where it is short, else its gzip.
    """
    if len(value) <= _PLAIN:
        return value
    deflate = zlib.compressobj(6, zlib.DEFLATED, _WITH_GZIP_HEADER)
    return deflate.compress(value) + deflate.flush()


def unpacked(value: bytes) -> bytes:
    """What `packed` was given. Raises ValueError for damaged gzip, and above MOST_UNPACKED."""
    if not value.startswith(_MAGIC):
        return value
    inflate = zlib.decompressobj(_WITH_GZIP_HEADER)
    try:
        plain = inflate.decompress(value, MOST_UNPACKED + 1)
    except zlib.error as error:
        raise ValueError(f"damaged gzip: {error}") from None
    if len(plain) > MOST_UNPACKED:
        raise ValueError(f"gzip of more than {MOST_UNPACKED} bytes")
    if not inflate.eof:
        raise ValueError("gzip that ends early")
    return plain


def json_object(value: bytes) -> dict[str, Any]:
    """The JSON object of a value, compressed or not, of which nobody knows who wrote it.

    Raises ValueError for everything else: no JSON, JSON that is no object, too deep, or with numbers too long.
    """
    try:
        parsed = json.loads(unpacked(value))
    except RecursionError:
        raise ValueError("JSON with too many values in one another") from None
    if not isinstance(parsed, dict):
        raise ValueError(f"JSON that is a {type(parsed).__name__}, not an object")
    return parsed
