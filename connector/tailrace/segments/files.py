"""Segment files for the commands that look into them: opened without copying, checked against their names."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tailrace.commitlog.descriptor import Descriptor, SegmentData, parse_name, read_descriptor
from tailrace_schemas.errors import CorruptError, UnsupportedError

GZIP: Final = b"\x1f\x8b"
"""How a file begins that gzip made."""


@contextmanager
def open_segment(path: Path) -> Iterator[SegmentData]:
    """The file's bytes at its present size, mapped read-only."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            yield mapped


def read_named_descriptor(path: Path, data: SegmentData) -> Descriptor:
    """The descriptor; raises CorruptError where the file's name says another version or id.

    A file that is not named as a segment is taken for what its header says. Raises UnsupportedError for what gzip made.
    """
    if data[: len(GZIP)] == GZIP:
        raise UnsupportedError("compressed by gzip: gunzip it first", offset=0)
    descriptor = read_descriptor(data)
    named = parse_name(path.name)
    if named not in (None, (descriptor.version, descriptor.id)):
        raise CorruptError(f"the header is that of CommitLog-{descriptor.version}-{descriptor.id}.log", offset=0)
    return descriptor
