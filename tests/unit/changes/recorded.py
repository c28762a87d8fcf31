"""The changes of recorded segments."""

from __future__ import annotations

from dataclasses import replace

from tailrace.commitlog.descriptor import read_descriptor
from tailrace.commitlog.frames import frames
from tailrace.commitlog.mutation import decode_mutation
from tailrace_schemas.change import Change, Source
from tailrace_schemas.position import Position
from tests.oracle.split import changes_of
from tests.unit.commitlog.recorded import recorded, sections_of

SOURCE = Source(host="h", datacenter="dc", position=Position(1, 1, 1), index=0, count=0)


def changes_in(kind: str) -> list[Change]:
    """All changes of the user tables of a folder."""
    folder = recorded(kind)
    tables = folder.tables()
    found: list[Change] = []
    for data in folder.segments.values():
        version = read_descriptor(data).version
        for section in sections_of(data):
            for frame in frames(section):
                mutation = decode_mutation(frame.payload, version, tables.get)
                source = replace(SOURCE, position=Position(1, 1, frame.end))
                found += changes_of(mutation, source, lambda table: table.cdc)
    return found
