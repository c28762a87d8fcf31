"""Moves of files, cut off at every step, within a file system and across two."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from tailrace.retention.release import archived, copy_file, move_file, sweep
from tailrace.retention.spool import Spool, SpoolError, list_both, merged
from tailrace.segments.files import SegmentFiles
from tailrace_schemas.errors import ServiceError, SettingsError
from tests.support.disk import FaultyDisk
from tests.support.kafka import Crash
from tests.unit.capture.segments import SegmentWriter, released

CONTENT = b"content" * 1000


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A file, and where it is to go."""
    (tmp_path / "to").mkdir()
    source = tmp_path / "from"
    source.write_bytes(CONTENT)
    return source, tmp_path / "to" / "file"


@pytest.mark.parametrize(
    ("apart", "nth"), [*((False, nth) for nth in range(1, 4)), *((True, nth) for nth in range(1, 5))]
)
def test_a_move_that_was_cut_off_is_whole_in_one_place_and_can_be_repeated(
    apart: bool, nth: int, places: tuple[Path, Path]
) -> None:
    """At every step there is."""
    source, target = places
    with pytest.raises(Crash):
        move_file(source, target, FaultyDisk(apart, nth))
    there = [path.read_bytes() for path in places if path.exists()]
    assert there, "it is nowhere"
    assert set(there) == {CONTENT}
    sweep(target.parent)
    if source.exists():
        move_file(source, target, FaultyDisk(apart))
    assert (target.read_bytes(), list(target.parent.iterdir()), source.exists()) == (CONTENT, [target], False)


def test_a_copy_that_finds_no_room_leaves_the_source_alone(places: tuple[Path, Path]) -> None:
    source, target = places
    disk = FaultyDisk(True, 1, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(OSError, match="No space left"):
        move_file(source, target, disk)
    assert source.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == []


def test_two_names_of_one_file_become_one(places: tuple[Path, Path]) -> None:
    """rename(2) does nothing then; the node's replay links again what was moved."""
    source, target = places
    target.hardlink_to(source)
    move_file(source, target)
    assert (source.exists(), target.read_bytes()) == (False, CONTENT)


def test_a_copy_is_made_once(places: tuple[Path, Path]) -> None:
    source, target = places
    copy_file(source, target)
    source.write_bytes(b"later")
    copy_file(source, target)
    assert (source.read_bytes(), target.read_bytes()) == (b"later", CONTENT)


def segment(root: Path, id: int = 5) -> SegmentWriter:
    """A finished one."""
    return released(root, id, b"a" * 10, completed=True)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("nth", range(1, 10))
def test_a_segment_whose_spooling_was_cut_off_counts_once(apart: bool, nth: int, tmp_path: Path) -> None:
    """Log and index are both there at every step; a log in cdc_raw has its index there, or Cassandra would delete it;
    the next attempt ends it."""
    writer = segment(tmp_path)
    raw, index = writer.link.read_bytes(), writer.index.read_bytes()
    disk = FaultyDisk(apart, nth)
    try:
        Spool(tmp_path / "spool", 1 << 20, disk).take(SegmentFiles(5, writer.link, writer.index))
    except Crash:
        pass
    else:
        assert nth > len(disk.steps)
    spool = Spool(tmp_path / "spool", 1 << 20)
    (files,) = list_both(writer.raw, spool).segments
    assert files.log is not None
    assert files.index is not None
    assert (files.log.read_bytes(), files.index.read_bytes()) == (raw, index)
    assert not writer.link.exists() or writer.index.exists()
    if files.spooled:
        spool.settle(files)
    else:
        spool.take(files)
    (files,) = list_both(writer.raw, spool).segments
    assert files == SegmentFiles(5, spool.directory / writer.link.name, spool.directory / writer.index.name, True)
    assert list(writer.raw.iterdir()) == []
    assert not list(spool.directory.glob(".*"))


def test_a_spool_that_cannot_be_made_says_which_setting(tmp_path: Path) -> None:
    """And moves nothing."""
    writer = segment(tmp_path)
    (tmp_path / "file").touch()
    spool = Spool(tmp_path / "file" / "spool", 1 << 20)
    with pytest.raises(SpoolError, match=r"agent\.spool_directory.*Not a directory"):
        spool.take(SegmentFiles(5, writer.link, writer.index))
    assert writer.link.exists()
    assert spool.problem() == f"agent.spool_directory: {tmp_path / 'file'} is not a directory"
    assert Spool(tmp_path / "new" / "spool", 1 << 20).problem() is None
    assert not (tmp_path / "new").exists()


def test_a_file_of_another_log_is_not_deleted_as_a_double(tmp_path: Path) -> None:
    """The same id, another header."""
    spool = Spool(tmp_path / "spool", 1 << 20)
    writer = segment(tmp_path)
    spool.take(SegmentFiles(5, writer.link, writer.index))
    writer.commitlog.unlink()
    again = SegmentWriter(tmp_path, 5, parameters=b'{"a":1}')
    again.sync(completed=True)
    (files,) = list_both(writer.raw, spool).segments
    assert spool.settle(files) == 0
    assert again.link.exists()


def test_each_log_epoch_has_a_directory_of_its_own(tmp_path: Path) -> None:
    """Ids are unique in one log only. The epoch is known before Kafka says it, and put right when it does."""
    writer = segment(tmp_path)
    early = Spool(tmp_path / "spool", 1 << 20)
    early.take(SegmentFiles(5, writer.link, writer.index))
    early.use(2)
    assert [files.id for files in early.listing().segments] == [5]
    assert early.directory == tmp_path / "spool" / "2"
    later = Spool(tmp_path / "spool", 1 << 20)
    assert [files.id for files in later.listing().segments] == [5]
    later.use(3)
    assert later.listing().segments == ()
    assert later.left_behind() == (tmp_path / "spool" / "2",)


@pytest.mark.promise("agent.failing-service")
def test_a_disk_that_fails_when_the_epoch_comes_is_waited_for(tmp_path: Path) -> None:
    """What was moved before goes to its place, or the session tries again; it is none of Kafka's errors that end it."""
    writer, disk = segment(tmp_path), FaultyDisk(apart=False)
    early = Spool(tmp_path / "spool", 1 << 20, disk)
    early.take(SegmentFiles(5, writer.link, writer.index))
    disk.nth, disk.error = len(disk.steps) + 3, OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(ServiceError, match="No space left on device"):
        early.use(2)
    assert Spool(tmp_path / "spool", 1 << 20).directory == tmp_path / "spool" / "1"
    early.use(2)
    assert [(files.id, files.log and files.log.parent.name) for files in early.listing().segments] == [(5, "2")]


def test_an_epoch_that_cannot_be_noted_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is for starts without Kafka alone."""
    root = tmp_path / "spool"
    (root / f"epoch.{os.getpid()}").mkdir(parents=True)
    spool = Spool(root, 1 << 20)
    spool.use(2)
    assert "cannot note the log epoch" in caplog.text
    (root / f"epoch.{os.getpid()}").rmdir()
    writer = segment(tmp_path)
    spool.take(SegmentFiles(5, writer.link, writer.index))
    assert Spool(root, 1 << 20).directory == root / "2"


@pytest.mark.promise("upgrade.later-records")
@pytest.mark.parametrize("number", [1, 3])
def test_the_epoch_that_another_version_noted_ends_the_start(tmp_path: Path, number: int) -> None:
    """Before a segment is moved: it may mean another directory."""
    root = tmp_path / "spool"
    root.mkdir()
    note = json.dumps({"epoch": 3, "format": number})
    (root / "epoch").write_text(note)
    words = rf"spool/epoch was written by another version .*format {number}; .*Install that version"
    with pytest.raises(SettingsError, match=words):
        Spool(root, 1 << 20)
    assert (root / "epoch").read_text() == note


def test_archiving_can_be_repeated(tmp_path: Path) -> None:
    """One that is gone already is fine, a missing directory is made."""
    writer = segment(tmp_path)
    release = archived(tmp_path / "archive" / "host" / "1")
    assert release.away is not None
    for _ in range(2):
        release.away(writer.link)
        release.away(writer.index)
    assert {path.name for path in (tmp_path / "archive" / "host" / "1").iterdir()} == {
        writer.link.name,
        writer.index.name,
    }
    assert list(writer.raw.iterdir()) == []


def test_merging_is_by_id(tmp_path: Path) -> None:
    """An index alone in the spool is half of a move."""
    spool = Spool(tmp_path / "spool", 1 << 20)
    writers = [segment(tmp_path, id) for id in (5, 6, 7)]
    spool.take(SegmentFiles(5, writers[0].link, writers[0].index))
    (spool.directory / writers[1].index.name).write_text("1")
    raw = list_both(writers[0].raw, None)
    found = merged(raw, spool.listing())
    assert [(files.id, files.spooled, len(files.doubles)) for files in found.segments] == [
        (5, True, 0),
        (6, False, 1),
        (7, False, 0),
    ]
