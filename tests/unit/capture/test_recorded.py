"""Real segments in a cdc_raw: every mutation at its position, and none before the index releases it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.capture.cdcraw import CdcRaw
from tailrace.commitlog.descriptor import read_descriptor
from tailrace.commitlog.sections import first_cursor, read_section
from tailrace.state import Resume
from tests.unit.capture.recorded import KINDS, lay_out
from tests.unit.commitlog.recorded import KEYS, Recorded, recorded


@pytest.fixture(params=KINDS)
def folder(request: pytest.FixtureRequest) -> Recorded:
    return recorded(request.param)


def positions(capture: CdcRaw) -> Iterator[tuple[int, int]]:
    """What is released now, to its end."""
    while entries := capture.read(7):
        yield from ((entry.position.segment, entry.position.offset) for entry in entries)


def expected(folder: Recorded) -> list[tuple[int, int]]:
    """Where Cassandra's own reader has its mutations; some folders leave out those of the system's tables."""
    return [(line["seg"], line["pos"]) for line in folder.expected if "pos" in line]


def test_finished_segments_are_read_whole(folder: Recorded, tmp_path: Path) -> None:
    """In order of id, whatever number the index has."""
    raw = lay_out(folder, tmp_path)
    for name in folder.segments:
        (raw / name.replace(".log", "_cdc.idx")).write_text("1\nCOMPLETED")
    with closing(CdcRaw(raw, Resume(), KEYS)) as capture:
        found = list(positions(capture))
    wanted = expected(folder)
    assert [place for place in found if place in set(wanted)] == wanted
    assert found == sorted(found)
    assert len(set(found)) == len(found)


@pytest.mark.promise("agent.index-released")
def test_a_growing_index_releases_section_by_section(folder: Recorded, tmp_path: Path) -> None:
    """At each boundary exactly what stands before it, by logical positions."""
    raw = lay_out(folder, tmp_path)
    found: list[tuple[int, int]] = []
    with closing(CdcRaw(raw, Resume(), KEYS)) as capture:
        for name, data in folder.segments.items():
            descriptor = read_descriptor(data)
            cursor = first_cursor(descriptor)
            while (section := read_section(descriptor, data, cursor, KEYS)) is not None:
                cursor = section.end
                (raw / name.replace(".log", "_cdc.idx")).write_text(str(cursor.logical))
                released = list(positions(capture))
                assert all(section.logical < offset <= cursor.logical for _, offset in released)
                found += released
    wanted = expected(folder)
    assert [place for place in found if place in set(wanted)] == wanted
