"""Segment files as Cassandra writes them, uncompressed, step by step."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path


class SegmentWriter:
    """One segment of version 7: in the commit log's directory, linked into cdc_raw, zero-filled to its size.

    `write` appends a section of mutations and returns the logical position behind each; `sync` lets the index release
    everything written.
    """

    def __init__(self, root: Path, segment: int, size: int = 4096, parameters: bytes = b"{}") -> None:
        self.id = segment
        self.raw = root / "cdc_raw"
        name = f"CommitLog-7-{segment}.log"
        self.commitlog, self.link = root / "commitlog" / name, self.raw / name
        self.index = self.raw / f"CommitLog-7-{segment}_cdc.idx"
        for directory in (self.commitlog.parent, self.raw):
            directory.mkdir(exist_ok=True)
        begun = header(segment, parameters)
        self.commitlog.write_bytes(begun.ljust(size, b"\0"))
        os.link(self.commitlog, self.link)
        self.at = len(begun)

    def write(self, *payloads: bytes) -> list[int]:
        """A section behind the last one; its marker is valid when this returns."""
        start, body, ends = self.at, b"", []
        for payload in payloads:
            length = struct.pack(">i", len(payload))
            check = zlib.crc32(length)
            body += length + struct.pack(">I", check) + payload + struct.pack(">I", zlib.crc32(payload, check))
            ends.append(start + 8 + len(body))
        self.at = start + 8 + len(body)
        self.patch(start + 8, body)
        low, high = self.id & 0xFFFFFFFF, self.id >> 32
        self.patch(start, struct.pack(">iI", self.at, zlib.crc32(struct.pack(">III", low, high, start))))
        return ends

    def patch(self, at: int, data: bytes) -> None:
        with self.commitlog.open("r+b") if self.commitlog.exists() else self.link.open("r+b") as file:
            file.seek(at)
            file.write(data)

    def sync(self, completed: bool = False) -> None:
        """Write the index."""
        self.index.write_text(f"{self.at}\nCOMPLETED" if completed else str(self.at))

    def discard(self) -> None:
        """Delete the commit log's own link, as Cassandra does when everything is flushed."""
        self.commitlog.unlink()

    def vanish(self) -> None:
        """Delete both links: only who has the file open still reads it."""
        self.link.unlink()
        self.discard()


def header(segment: int, parameters: bytes = b"{}") -> bytes:
    """What a segment's file begins with."""
    head = struct.pack(">iqH", 7, segment, len(parameters)) + parameters
    low, high = segment & 0xFFFFFFFF, segment >> 32
    return head + struct.pack(
        ">I", zlib.crc32(parameters, zlib.crc32(struct.pack(">iIII", 7, low, high, len(parameters))))
    )


def written(root: Path, segment: int, *payloads: bytes) -> SegmentWriter:
    """A segment with a section of these, of which its index releases none."""
    writer = SegmentWriter(root, segment)
    writer.write(*payloads)
    return writer


def released(root: Path, segment: int, *payloads: bytes, completed: bool = False) -> SegmentWriter:
    """The same, whose index releases all."""
    writer = written(root, segment, *payloads)
    writer.sync(completed)
    return writer
