"""What the run loop rests on, of cdc_raw's reader and of the fake that its tests use: both keep the same promises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tailrace.agent.ports import Capture
from tailrace.capture.cdcraw import CdcRaw
from tailrace.commitlog.frames import Entry
from tailrace.state import Resume
from tailrace_schemas.errors import CorruptError
from tests.support.capture import MemoryCapture, MemoryLog
from tests.support.kafka import Faults
from tests.unit.capture.segments import written

A, B, C = (letter * 10 for letter in (b"a", b"b", b"c"))


class World(Protocol):
    """A commit log, and readers of it."""

    def append(self, segment: int, *payloads: bytes, final: bool = True) -> None:
        """Mutations of a new segment, released by its index; a final one gets no others."""

    def capture(self, resume: Resume) -> Capture:
        """A reader that goes on behind a record."""


class MemoryWorld:
    """The fake."""

    def __init__(self) -> None:
        self.log = MemoryLog()

    def append(self, segment: int, *payloads: bytes, final: bool = True) -> None:
        self.log.append(segment, payloads, final)

    def capture(self, resume: Resume) -> Capture:
        return MemoryCapture(self.log, resume, Faults())


class FileWorld:
    """Segments on disk, and the agent's own reader."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.readers: list[CdcRaw] = []

    def append(self, segment: int, *payloads: bytes, final: bool = True) -> None:
        writer = written(self.root, segment, *payloads)
        writer.sync(completed=final)

    def capture(self, resume: Resume) -> Capture:
        self.readers.append(CdcRaw(self.root / "cdc_raw", resume))
        return self.readers[-1]


@pytest.fixture(params=["fake", "cdc_raw"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Segment 5 with A and B, which is final, and segment 6 with C, which is not."""
    files = FileWorld(tmp_path)
    world: World = files if request.param == "cdc_raw" else MemoryWorld()
    world.append(5, A, B)
    world.append(6, C, final=False)
    yield world
    for reader in files.readers:
        reader.close()


def payloads(entries: list[Entry]) -> list[bytes]:
    return [entry.payload for entry in entries]


def read_all(capture: Capture) -> list[Entry]:
    """Until a read gives nothing."""
    entries: list[Entry] = []
    while batch := capture.read(1):
        entries += batch
    return entries


def test_mutations_come_once_in_order_of_their_positions(world: World) -> None:
    capture = world.capture(Resume())
    entries = read_all(capture)
    assert payloads(entries) == [A, B, C]
    positions = [entry.position for entry in entries]
    assert positions == sorted(set(positions))
    assert [position.segment for position in positions] == [5, 5, 6]
    assert capture.passed(positions[-1], settled=False)


def test_a_reader_goes_on_behind_its_record(world: World) -> None:
    first = world.capture(Resume())
    entries = read_all(first)
    record = Resume(position=entries[0].position, open=first.open_segments())
    assert payloads(read_all(world.capture(record))) == [B, C]


def test_a_final_segment_is_released_once_its_last_position_is_committed(world: World) -> None:
    capture = world.capture(Resume())
    a, b, c = (entry.position for entry in read_all(capture))
    assert not capture.finished(a)
    capture.committed(a, ())
    assert capture.release(a) == ()
    assert capture.finished(b)
    capture.committed(c, ())
    assert capture.release(c) == (5,)
    assert not capture.finished(c)


def test_a_segment_that_is_kept_is_not_released(world: World) -> None:
    capture = world.capture(Resume())
    last = read_all(capture)[-1].position
    capture.keep(frozenset({5}))
    capture.committed(last, ())
    assert not capture.finished(last)
    assert capture.release(last) == ()
    capture.keep(frozenset())
    assert capture.release(last) == (5,)


def test_a_quarantined_segment_is_read_no_further(world: World) -> None:
    capture = world.capture(Resume())
    (first,) = capture.read(1)
    capture.quarantine(first.position, CorruptError("damaged", offset=0))
    assert payloads(read_all(capture)) == [C]
    assert set(capture.quarantined) == {5}


def test_mutations_are_read_again_by_their_offsets(world: World) -> None:
    capture = world.capture(Resume())
    entries = read_all(capture)
    b = entries[1].position
    checksums = dict(capture.open_segments())
    assert payloads(list(capture.reread(b.epoch, 5, checksums[5], [b.offset]))) == [B]
    assert list(capture.reread(b.epoch, 5, checksums[5] + 1, [b.offset])) == []
