"""Frames: the checksummed records of a section, each with the position that Cassandra gives it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from tailrace.commitlog.sections import Section
from tailrace_schemas.errors import CorruptError

OVERHEAD: Final = 12
"""Bytes of a frame around its payload: length, checksum of the length, checksum of both."""

_MINIMUM: Final = 10
_HEAD: Final = struct.Struct(">iI")


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. `end` is the logical position behind it (Cassandra's CommitLogPosition), `payload` a mutation."""

    end: int
    payload: bytes


def frames(section: Section, after: int = 0) -> Iterator[Frame]:
    """The frames of a section in order, those that end behind logical position `after` (CommitLogReader.readSection).

    `after` must be a frame's end, or a position outside of the section: reading starts there, nothing before it is
    looked at. Raises CorruptError at the first frame that breaks a rule; its offset is the frame's logical position
    and the rest of the section is lost, as its lengths can no longer be trusted.

    A length of zero, at which Cassandra stops reading, is an error here too: no writer since 3.0 puts one inside a
    section, so it means bytes that were lost after their marker was written, or a marker that points too far.
    """
    data = section.data
    base = section.logical
    size = len(data)
    at = max(after - base, 0)
    # Up to three bytes behind the last frame are no frame; Cassandra ignores them and so do we.
    while at <= size - 4:
        end = at + _payload_size(data, at, base) + OVERHEAD
        checksum = int.from_bytes(data[end - 4 : end], "big")
        payload = data[at + 8 : end - 4]
        # The payload's checksum continues the length's.
        if crc32(payload, crc32(data[at : at + 4])) != checksum:
            raise CorruptError(f"frame: wrong checksum over {len(payload)} bytes of payload", offset=base + at)
        yield Frame(base + end, payload)
        at = end


def _payload_size(data: bytes, at: int, base: int) -> int:
    """The length of the frame at `at`, checked against its own checksum and the section's end."""
    left = len(data) - at
    if left < 8:
        raise CorruptError(f"frame: {left} bytes left in the section, too few for a frame", offset=base + at)
    length: int
    length, checksum = _HEAD.unpack_from(data, at)
    if length < _MINIMUM:
        raise CorruptError(f"frame: a length of {length} bytes", offset=base + at)
    if crc32(data[at : at + 4]) != checksum:
        raise CorruptError("frame: wrong checksum of its length", offset=base + at)
    if length > left - OVERHEAD:
        raise CorruptError(f"frame: {length} bytes of payload, but the section ends after {left}", offset=base + at)
    return length
