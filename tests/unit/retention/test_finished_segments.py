"""Which released segments are remembered: as many as the node's commit log can hold, at any size."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.capture.cdcraw import CdcRaw
from tailrace.retention.finished_segments import Ledger
from tailrace.segments.files import SegmentFiles
from tailrace.state import Resume
from tailrace_schemas.position import Position
from tests.unit.capture.segments import SegmentWriter

FAR = 1 << 30
_opened: list[CdcRaw] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def reader(root: Path, resume: Resume | None = None) -> CdcRaw:
    _opened.append(CdcRaw(root / "cdc_raw", resume or Resume()))
    return _opened[-1]


def read_all(capture: CdcRaw) -> int:
    number = 0
    while entries := capture.read(1000):
        number += len(entries)
    return number


def publish(capture: CdcRaw, last: int) -> Resume:
    """Commit and release everything up to a segment's end; the record."""
    position = Position(1, last, FAR)
    capture.committed(position)
    capture.release(position)
    return Resume(position, capture.open_segments())


def link_again(segments: list[SegmentWriter]) -> None:
    """As the node's replay does it after a crash."""
    for segment in segments:
        os.link(segment.commitlog, segment.link)
        segment.sync(completed=True)


@pytest.mark.promise("agent.cassandra-killed-large-log")
@pytest.mark.slow
@pytest.mark.parametrize("count", [70, 260])
def test_a_replay_is_known_however_many_segments_the_log_holds(tmp_path: Path, count: int) -> None:
    """By the agent that released them, and by its successors: nothing is read again, all is released again."""
    segments = [SegmentWriter(tmp_path, id, size=128) for id in range(5, 5 + count)]
    for segment in segments:
        segment.write(b"a" * 10)
        segment.sync(completed=True)
    last = segments[-1].id
    capture = reader(tmp_path)
    assert read_all(capture) == count
    record = publish(capture, last)
    assert len(record.open) == count
    for again in (capture, reader(tmp_path, record)):
        link_again(segments)
        assert read_all(again) == 0
        assert publish(again, last).open == record.open
        assert not list(segments[0].raw.glob("*.log"))


@pytest.mark.slow
def test_what_the_log_has_deleted_is_forgotten(tmp_path: Path) -> None:
    """Also what was released while too many files were open to see it go: once an older one is gone."""
    segments = [SegmentWriter(tmp_path, id, size=128) for id in range(5, 275)]
    for segment in segments:
        segment.write(b"a" * 10)
        segment.sync(completed=True)
    capture = reader(tmp_path)
    read_all(capture)
    assert len(publish(capture, 274).open) == 270
    for segment in segments:
        segment.discard()
    capture.read(1)
    assert len(capture.open_segments()) <= 256


def copies(folder: Path, count: int) -> list[SegmentFiles]:
    """Segments in a spool on another disk, the links of which nobody can count."""
    folder.mkdir()
    paths = [folder / f"CommitLog-7-{id}.log" for id in range(count)]
    for path in paths:
        path.write_bytes(b"copy")
    return [SegmentFiles(id, path, None, spooled=True) for id, path in enumerate(paths)]


@pytest.mark.parametrize(("capacity", "remembered"), [(None, 256), (40, 256), (280, 280), (1000, 300)])
def test_copies_are_remembered_as_far_as_the_log_has_room(
    tmp_path: Path, capacity: int | None, remembered: int
) -> None:
    """The newest of them; by the node's word, and 256 without it."""
    ledger = Ledger(capacity=lambda: capacity)
    for files in copies(tmp_path / "spool", 300):
        ledger.release(files)
    ledger.forget_missing(frozenset())
    assert sorted(dict(ledger.keys())) == list(range(300 - remembered, 300))
    ledger.close()
