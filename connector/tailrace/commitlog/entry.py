"""A released mutation, still serialized, with its place in the log."""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from tailrace.commitlog.frames import OVERHEAD, frame_length, frame_payload
from tailrace.commitlog.sections import Section
from tailrace_schemas.position import Position


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
