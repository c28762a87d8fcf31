"""Sync sections: from one sync marker of a segment to the bytes that stand before the next, decompressed."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tailrace.commitlog.blocks import NO_KEYS, Keys, decompress, decrypt_section
from tailrace.commitlog.descriptor import Descriptor, SegmentData
from tailrace_schemas.errors import CorruptError, DecodeError, TruncatedError

MARKER_SIZE: Final = 8
_MARKER: Final = struct.Struct(">iI")
_CHECKED: Final = struct.Struct(">III")
# Positions are Java ints.
_LAST_POSITION: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Cursor:
    """The place of a sync marker: its offset in the file, and its logical position.

    Logical positions count the writer's uncompressed buffer (CommitLogPosition); they differ from file offsets in
    compressed segments only.
    """

    marker: int
    logical: int


@dataclass(frozen=True, slots=True)
class Section:
    """The frames between two sync markers, uncompressed.

    `logical` is the logical position of the first byte of `data`. `start` is the marker that opens the section, `end`
    the one behind it: `end.logical` is `logical + len(data)`, where the next section begins.
    """

    data: bytes
    logical: int
    start: Cursor
    end: Cursor


def first_cursor(descriptor: Descriptor) -> Cursor:
    """The first sync marker of a segment: right behind its header."""
    # The header is never compressed or encrypted, so both positions begin with the same number (CommitLogPosition).
    return Cursor(descriptor.header_size, descriptor.header_size)


def read_section(descriptor: Descriptor, data: SegmentData, cursor: Cursor, keys: Keys = NO_KEYS) -> Section | None:
    """The section that the marker at `cursor` opens, or None while nothing complete stands there.

    None means an all-zero marker, or no room for one: the clean end of a finished segment, and "not yet" in a live one.
    `data` is the segment from its first byte up to its present size; only the section itself is copied. `keys` open
    encrypted segments. Rules: CommitLogSegmentReader.readSyncMarker and its segmenters.

    Raises TruncatedError for a valid marker that points past the end, CorruptError for a wrong checksum or a section
    that breaks its rules. Raises UnsupportedError for a compressor or cipher that is not read, or a key that is not
    there. Each has the file offset. In a segment that is still written, the first two may mean that the writer was met
    half-way.
    """
    end = _read_marker(descriptor, data, cursor.marker)
    if end is None:
        return None
    start = cursor.marker + MARKER_SIZE
    # Mapped and direct-I/O segments (MemoryMappedSegment, DirectIOSegment) have the frames themselves between markers.
    if descriptor.compression is None and descriptor.cipher is None:
        content = bytes(data[start:end])
    else:
        content = _expand(descriptor, data, start, end, _LAST_POSITION - cursor.logical - MARKER_SIZE, keys)
    # The length field of a compressed section does not count: its segmenters count the writer's buffer.
    logical = cursor.logical + MARKER_SIZE
    return Section(content, logical, cursor, Cursor(end, logical + len(content)))


def sections(
    descriptor: Descriptor, data: SegmentData, cursor: Cursor | None = None, keys: Keys = NO_KEYS
) -> Iterator[Section]:
    """The sections from `cursor` (by default the first) to the clean end; raises as `read_section` does."""
    section = read_section(descriptor, data, cursor or first_cursor(descriptor), keys)
    while section is not None:
        yield section
        section = read_section(descriptor, data, section.end, keys)


def _read_marker(descriptor: Descriptor, data: SegmentData, offset: int) -> int | None:
    """The file offset of the next marker, which is the end of the section behind the marker at `offset`."""
    size = len(data)
    # readSyncMarker: without room for another marker the segment has ended.
    if offset > size - MARKER_SIZE:
        return None
    following, checksum = _MARKER.unpack_from(data, offset)
    # The checksum covers where the marker stands, not what it points to; the id's low word comes first.
    if zlib.crc32(_CHECKED.pack(descriptor.id & 0xFFFFFFFF, descriptor.id >> 32 & 0xFFFFFFFF, offset)) != checksum:
        # A mapped file is full of zeros from its creation on, so a marker of zeros is the end, or not written yet.
        if following == 0 and checksum == 0:
            return None
        raise CorruptError("sync marker: wrong checksum", offset=offset)
    # The checksum held, so the writer meant it: the file was cut, or a compressed section is being appended.
    if following > size:
        raise TruncatedError(f"sync marker: section ends at {following}, the file at {size}", offset=offset)
    if following < offset + MARKER_SIZE:
        raise CorruptError(f"sync marker: section ends at {following}, before it begins", offset=offset)
    return int(following)


def _expand(descriptor: Descriptor, data: SegmentData, start: int, end: int, limit: int, keys: Keys) -> bytes:
    """The content of a compressed or encrypted section: its plain length (i32, up to `limit`), then its blocks."""
    if end - start < 4:
        raise CorruptError("compressed section: no room for its length", offset=start)
    size = int.from_bytes(data[start : start + 4], "big", signed=True)
    # Before memory is taken: a damaged length may ask for anything up to 2 GiB.
    if not 0 <= size <= limit:
        raise CorruptError(f"compressed section: length {size}", offset=start)
    if size == 0:
        # A segment may close on an empty section; what its block looks like is the compressor's own affair.
        return b""
    blocks = memoryview(bytes(data[start + 4 : end]))
    try:
        # Encryption wins where the header names both (CommitLogSegment.createSegment picks EncryptedSegment first).
        if descriptor.cipher is not None:
            return decrypt_section(descriptor, blocks, size, keys)
        return decompress(descriptor.compression or "", blocks, size)
    except DecodeError as error:
        error.offset = start
        raise
