"""Frames, the checksummed records of a section, by position; and entries, released mutations still serialized."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from zlib import crc32

from librt.strings import read_i32_be
from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from tailrace.commitlog.sections import Section
from tailrace_schemas.errors import CorruptError
from tailrace_schemas.position import Position

OVERHEAD: Final = 12
"""Bytes of a frame around its payload: length, checksum of the length, checksum of both."""

# Length and its checksum, before the payload.
_HEAD: Final = 8
# CommitLogReader.readSection takes a length below 10 for damage: no mutation is that short.
_MINIMUM: Final = 10
_BITS_32: Final = 0xFFFFFFFF
# What each byte makes of a checksum: the checksum of an 8-bit message without the complements at its ends.
_CHECKSUMS: Final = vec[i64]([crc32(bytes([byte]), _BITS_32) ^ _BITS_32 for byte in range(256)])


@mypyc_attr(acyclic=True)
class Frame:
    """One frame. `end` is the logical position behind it (Cassandra's CommitLogPosition), `payload` a mutation.

    No tuple and no dataclass: made by compiled code, both take several times as long.
    """

    __slots__ = ("end", "payload")

    def __init__(self, end: int, payload: bytes) -> None:
        self.end = end
        self.payload = payload

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frame) and self.end == other.end and self.payload == other.payload

    def __hash__(self) -> int:
        return hash((self.end, self.payload))

    def __repr__(self) -> str:
        return f"Frame({self.end}, {self.payload!r})"


def frames(section: Section, after: int = 0) -> Iterator[Frame]:
    """The frames of a section in order, those that end behind logical position `after` (CommitLogReader.readSection).

    `after` must be a frame's end, or a position outside of the section: reading starts there, nothing before it is
    looked at. Raises CorruptError at the first frame that breaks a rule; its offset is the frame's logical position.
    The rest of the section is lost then, as its lengths can no longer be trusted.

    A length of zero, at which Cassandra stops reading, is an error here: no writer since 3.0 puts one inside a section.
    It means bytes that were lost after their marker was written, or a marker that points too far.
    """
    data = section.data
    base = section.logical
    size: i64 = len(data)
    offset: i64 = max(after - base, 0)
    # Up to three bytes behind the last frame are no frame; Cassandra ignores them and so do we.
    while offset <= size - 4:
        length = frame_length(data, offset, base)
        payload = frame_payload(data, offset, length, base)
        offset += length + OVERHEAD
        yield Frame(base + offset, payload)


def frames_of(section: Section, tables: frozenset[bytes], id_at: i64, after: int = 0) -> Iterator[Frame]:
    """Of the frames behind `after`, those whose payload has the id of one of `tables` at `id_at`.

    The others are stepped over by their checked lengths, their payloads unread: many times faster than `frames`,
    which see for the rest.
    """
    data = section.data
    base = section.logical
    size: i64 = len(data)
    offset: i64 = max(after - base, 0)
    while offset <= size - 4:
        length = frame_length(data, offset, base)
        start, id_start = offset, offset + _HEAD + id_at
        offset += length + OVERHEAD
        # The payload's checksum is verified for frames that are handed out alone; the length's own has let us step this
        # far. Before the id stands the number of updates, which has a second byte from 128 on (VIntCoding).
        if data[id_start : id_start + 16] in tables or (
            data[id_start - 1] > 127 and data[id_start + 1 : id_start + 17] in tables
        ):
            yield Frame(base + offset, frame_payload(data, start, length, base))


def _checksum_of_four(data: bytes, offset: i64) -> i64:
    """The CRC-32 of the four bytes at `offset`, without the slice that zlib's would take."""
    checksum: i64 = _BITS_32
    end = offset + 4
    while offset < end:
        checksum = _CHECKSUMS[(checksum ^ data[offset]) & 255] ^ (checksum >> 8)
        offset += 1
    return checksum ^ _BITS_32


def frame_length(data: bytes, start: i64, base: int) -> i64:
    """The length of the payload of the frame at `start`, checked against its own checksum and the section's end."""
    remaining: i64 = len(data) - start
    if remaining < _HEAD:
        raise CorruptError(f"frame: {remaining} bytes left in the section, too few for a frame", offset=base + start)
    length = i64(read_i32_be(data, start))
    if length < _MINIMUM:
        raise CorruptError(f"frame: a length of {length} bytes", offset=base + start)
    # CommitLog.add writes a checksum of the length by itself, so that a reader may step over a payload that is damaged.
    if i64(read_i32_be(data, start + 4)) & _BITS_32 != _checksum_of_four(data, start):
        raise CorruptError("frame: wrong checksum of its length", offset=base + start)
    # A marker is published only when all frames before it are whole (CommitLogSegment.sync waits for them): a frame
    # that crosses the section's end is damage, not "not yet".
    if length > remaining - OVERHEAD:
        raise CorruptError(
            f"frame: {length} bytes of payload, but the section ends after {remaining}", offset=base + start
        )
    return length


def frame_payload(data: bytes, start: i64, length: i64, base: int) -> bytes:
    """The payload of the frame at `start`, of a checked length; its checksum continues the length's."""
    end = start + _HEAD + length
    payload = data[start + _HEAD : end]
    # CommitLog.add goes on with one CRC32 from the length to the payload, so the stored one of the length is its start.
    if crc32(payload, i64(read_i32_be(data, start + 4)) & _BITS_32) != i64(read_i32_be(data, end)) & _BITS_32:
        raise CorruptError(f"frame: wrong checksum over {length} bytes of payload", offset=base + start)
    return payload


@mypyc_attr(acyclic=True)
class Entry:
    """One mutation: its position (the frame's end), segment version, and the name of its file.

    No dataclass, for the reason that Frame is none; its position is made when somebody asks.
    """

    __slots__ = ("epoch", "file", "offset", "payload", "segment", "version")

    def __init__(self, epoch: int, segment: int, offset: int, payload: bytes, version: int, file: str) -> None:
        self.epoch = epoch
        self.segment = segment
        self.offset = offset
        self.payload = payload
        self.version = version
        self.file = file

    @property
    def position(self) -> Position:
        """The end of the mutation."""
        return Position(self.epoch, self.segment, self.offset)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entry) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"Entry({self.position}, {self.payload!r}, {self.version}, {self.file!r})"

    def _key(self) -> tuple[int, int, int, bytes, int, str]:
        return self.epoch, self.segment, self.offset, self.payload, self.version, self.file


class Stretch:
    """What the entries of a section have in common, and up to where they were handed out: logical position `after`."""

    def __init__(self, epoch: int, segment: int, version: int, file: str, section: Section, after: int) -> None:
        self._epoch = epoch
        self._segment = segment
        self._version = version
        self._file = file
        self._data = section.data
        self._base: i64 = section.logical
        self.after: i64 = after

    def take(self, entries: list[Entry], limit: i64, most_bytes: i64) -> i64:
        """Add the entries that follow, until `entries` has `limit` of them, or they have about so many bytes; how many
        bytes of payload were added.

        Raises CorruptError as `frames.frames` does; what stands before the damage was added by then.
        """
        data, base = self._data, self._base
        size: i64 = len(data)
        offset: i64 = max(self.after - base, 0)
        payload_bytes: i64 = 0
        while offset <= size - 4 and payload_bytes < most_bytes and len(entries) < limit:
            length = frame_length(data, offset, base)
            # CommitLogReader.readSection goes on behind a payload with a wrong checksum if its handler says so. This
            # stops: a mutation that is passed over is a lost change, which has to be told (contracts.md 1).
            payload = frame_payload(data, offset, length, base)
            offset += length + OVERHEAD
            payload_bytes += length
            entries.append(Entry(self._epoch, self._segment, base + offset, payload, self._version, self._file))
            self.after = base + offset
        return payload_bytes

    @property
    def ended(self) -> bool:
        """Whether nothing follows."""
        size: i64 = len(self._data)
        return max(self.after - self._base, 0) > size - 4
