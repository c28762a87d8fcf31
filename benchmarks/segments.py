"""Recorded segments and the definitions of their tables; run as a program: decode a directory and say the memory."""

from __future__ import annotations

import json
import mmap
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.agent.processes import memory_mb_of
from tailrace.changes.transcode import Transcoder
from tailrace.commitlog.descriptor import read_descriptor
from tailrace.commitlog.frames import frames
from tailrace.commitlog.sections import Section, first_cursor, read_section
from tailrace_schemas.change import Source
from tailrace_schemas.definitions import Definitions, tables_from_rows
from tailrace_schemas.position import Position

SOURCE = Source(host="h", datacenter="dc", position=Position(1, 1, 0), index=0, count=0)


def definitions_in(place: Path) -> Definitions:
    """The definitions of the tables whose segments are there."""
    rows = json.loads((place / "schema.json").read_text())
    for row in rows["columns"]:
        row["column_name_bytes"] = bytes.fromhex(row["column_name_bytes"])
    return tables_from_rows(**rows)


def sections(path: Path) -> Iterator[tuple[int, Section]]:
    """Every section of a segment, with its version."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        descriptor = read_descriptor(data)
        cursor = first_cursor(descriptor)
        while section := read_section(descriptor, data, cursor):
            data.madvise(mmap.MADV_DONTNEED)  # as the agent does
            yield descriptor.version, section
            cursor = section.end


def main() -> None:
    """Transcode a directory's segments, so many times, and print the most memory that took, in MB."""
    place, times = Path(sys.argv[1]), int(sys.argv[2])
    tables = {table.id.bytes: table for table in definitions_in(place).tables}
    messages = Transcoder("bench").messages
    for _ in range(times):
        for path in sorted(place.glob("*.log")):
            for version, section in sections(path):
                for frame in frames(section):
                    messages(frame.payload, version, tables.get, SOURCE)
    print(memory_mb_of())


if __name__ == "__main__":
    main()
