"""Real segments in a cdc_raw: every mutation at its position, and none before the index releases it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.capture.cdcraw import CdcRaw
from tailrace.commitlog.descriptor import read_descriptor
from tailrace.commitlog.sections import first_cursor, read_section
from tailrace.state.resume import Resume
from tests.unit.commitlog.recorded import KEYS, Recorded, recorded

# Uncompressed, compressed and encrypted (where the index counts what the file does not hold), two segments, versions.
KINDS = (
    "4.0-beta4/rollover-uncompressed",
    "4.0-beta4/lz4",
    "4.0-beta4/encrypted",
    "5.0.1/uncompressed",
    "5.0.1/lz4",
    "5.0.1/zstd",
    "5.0.1/directio",
    "6.0-alpha2/uncompressed",
)


@pytest.fixture(params=KINDS)
def folder(request: pytest.FixtureRequest) -> Recorded:
    """Each folder."""
    return recorded(request.param)


def lay_out(folder: Recorded, root: Path) -> Path:
    """The segments in a commit log, linked into a cdc_raw without indexes."""
    (root / "commitlog").mkdir()
    raw = root / "cdc_raw"
    raw.mkdir()
    for name, data in folder.segments.items():
        (root / "commitlog" / name).write_bytes(data)
        os.link(root / "commitlog" / name, raw / name)
    return raw


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
