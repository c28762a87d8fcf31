"""The life of a segment beyond cdc_raw: read from the spool, archived, kept, missed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from errno import EACCES
from pathlib import Path

import pytest

from tailrace.capture.cdcraw import CdcRaw
from tailrace.errors import LogEpochError
from tailrace.publish.reports import loss_record
from tailrace.retention.missing import Register
from tailrace.retention.release import DELETED, KEPT, Release, archived
from tailrace.retention.spool import Spool, list_both
from tailrace.schema.ddl_log import SchemaLog
from tailrace.segments.files import SegmentFiles
from tailrace.segments.kept import KeptSegments
from tailrace.segments.open_segment import header_checksum
from tailrace.state import Resume
from tailrace_schemas.errors import CorruptError, ServiceError
from tailrace_schemas.position import Position
from tests.support.disk import FaultyDisk
from tests.unit.capture.segments import SegmentWriter, released
from tests.unit.mutations import EPOCH, deletion
from tests.unit.tables import table

A, B, C, D = (letter * 10 for letter in (b"a", b"b", b"c", b"d"))
FAR = 1 << 30


class Node:
    """A node's directories, and agents that come and go. `apart`: the spool is on another file system."""

    def __init__(self, root: Path, apart: bool = False, may_delete: bool = False) -> None:
        self.root = root
        self.raw = root / "cdc_raw"
        self.apart = apart
        self.release: Release = DELETED
        self.register = Register(lambda: may_delete)
        self.spool = self._spool()
        self._opened: list[CdcRaw] = []

    def _spool(self) -> Spool:
        return Spool(self.root / "spool", 1 << 30, FaultyDisk(self.apart))

    def start(self, resume: Resume | None = None) -> CdcRaw:
        """A session in this process."""
        capture = CdcRaw(self.raw, resume or Resume(), spool=self.spool, register=self.register, release=self.release)
        self._opened.append(capture)
        return capture

    def restart(self, resume: Resume, may_delete: bool = False) -> CdcRaw:
        """A session in another process: nothing is known but the record."""
        self.register, self.spool = Register(lambda: may_delete), self._spool()
        return self.start(resume)

    def spooling(self, *ids: int) -> None:
        for files in list_both(self.raw, self.spool).segments:
            if files.id in ids:
                self.spool.take(files)

    def close(self) -> None:
        for capture in self._opened:
            capture.close()


@pytest.fixture(params=[False, True], ids=["one disk", "two disks"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path, request.param)
    yield node
    node.close()


def finished(root: Path, id: int, *payloads: bytes) -> SegmentWriter:
    """A segment that gets nothing more."""
    return released(root, id, *payloads, completed=True)


def payloads(capture: CdcRaw, limit: int = 100) -> list[bytes]:
    """What is released now, segment after segment, up to where nothing follows."""
    found: list[bytes] = []
    while entries := capture.read(limit):
        found += [entry.payload for entry in entries]
    return found


def record(capture: CdcRaw, position: Position) -> Resume:
    """Commit a position: what Kafka then has."""
    losses = capture.losses
    broken = tuple(capture.quarantined.values())
    unread, reported = capture.unread(position), capture.reported(position)
    resume = Resume(position, capture.open_segments(), broken, unread=unread, reported=reported)
    capture.committed(position, losses)
    return resume


def test_cdc_raw_and_spool_are_one_sequence(node: Node) -> None:
    """By id, whichever of them a segment stands in, and wherever it goes meanwhile; all are released."""
    for id, payload in ((5, A), (6, B), (7, C), (8, D)):
        finished(node.root, id, payload)
    node.spooling(5, 7)
    capture = node.start()
    assert [entry.payload for entry in capture.read(1)] == [A]
    node.spooling(6)
    assert payloads(capture) == [B, C, D]
    record(capture, Position(1, 8, FAR))
    assert capture.release(Position(1, 8, FAR)) == (5, 6, 7, 8)
    assert list_both(node.raw, node.spool).segments == ()
    assert capture.losses == ()


def test_a_segment_is_spooled_while_it_is_read(node: Node) -> None:
    """Its open file is read on; what the index released before counts as before."""
    finished(node.root, 5, A, B)
    later = finished(node.root, 6, C)
    capture = node.start()
    assert [entry.payload for entry in capture.read(1)] == [A]
    node.spooling(5)
    assert payloads(capture) == [B, C]
    later.discard()
    assert capture.losses == ()


def test_what_was_final_by_its_links_is_so_in_the_spool(node: Node) -> None:
    """Its index never said COMPLETED, nothing comes behind it, and the name by which it was opened is gone."""
    segment = released(node.root, 5, A)
    capture = node.start()
    assert payloads(capture) == [A]
    assert not capture.finished(Position(1, 5, FAR))
    segment.discard()
    node.spooling(5)
    assert payloads(capture) == []
    assert capture.finished(Position(1, 5, FAR))


def test_a_successor_goes_on_in_the_spool(node: Node) -> None:
    """In the middle of a segment that stands there."""
    segment = SegmentWriter(node.root, 5)
    ends = segment.write(A, B)
    segment.sync(completed=True)
    finished(node.root, 6, C)
    capture = node.start()
    assert len(capture.read(1)) == 1
    resume = record(capture, Position(1, 5, ends[0]))
    assert resume.unread == ((5, 6),)
    node.spooling(5, 6)
    after = node.restart(resume)
    assert payloads(after) == [B, C]
    assert after.losses == ()


def test_what_is_kept_is_not_released_until_it_is_let_go(node: Node) -> None:
    """Parked and quarantined segments; they may be spooled."""
    for id, payload in ((5, A), (6, B), (7, C)):
        finished(node.root, id, payload)
    capture = node.start()
    capture.keep(frozenset({5}))
    assert len(capture.read(1)) == 1
    assert len(capture.read(1)) == 1
    capture.quarantine(Position(1, 6, 0), CorruptError("no mutation"))
    assert node.register.spared == frozenset({5, 6})
    assert payloads(capture) == [C]
    node.spooling(5, 6)
    resume = record(capture, Position(1, 7, FAR))
    assert capture.release(Position(1, 7, FAR)) == (7,)
    assert not capture.finished(Position(1, 7, FAR))
    after = node.restart(resume)
    after.keep(frozenset({5}))
    assert payloads(after) == []
    record(after, Position(1, 7, FAR))
    assert after.release(Position(1, 7, FAR)) == ()
    after.keep(frozenset())
    assert after.release(Position(1, 7, FAR)) == (5,)
    assert [files.id for files in list_both(node.raw, node.spool).segments] == [6]


def test_archived_segments_are_whole_and_never_read_again(node: Node) -> None:
    """Log and index, from cdc_raw and from the spool."""
    node.release = archived(node.root / "archive" / "h" / "1", FaultyDisk(node.apart))
    finished(node.root, 5, A)
    content = (node.raw / "CommitLog-7-6.log", finished(node.root, 6, B).link.read_bytes())
    node.spooling(5)
    capture = node.start()
    assert payloads(capture) == [A, B]
    resume = record(capture, Position(1, 6, FAR))
    assert capture.release(Position(1, 6, FAR)) == (5, 6)
    archive = node.root / "archive" / "h" / "1"
    assert sorted(path.name for path in archive.iterdir()) == [
        "CommitLog-7-5.log",
        "CommitLog-7-5_cdc.idx",
        "CommitLog-7-6.log",
        "CommitLog-7-6_cdc.idx",
    ]
    assert (archive / content[0].name).read_bytes() == content[1]
    assert list_both(node.raw, node.spool).segments == ()
    after = node.restart(resume)
    assert payloads(after) == []
    assert after.losses == ()


@pytest.mark.promise("agent.cassandra-killed")
@pytest.mark.parametrize("where", ["delete", "archive", "spool", "spool and archive"])
def test_a_released_segment_that_replay_links_again_is_known(node: Node, where: str) -> None:
    """The node crashed and replays its log: what is linked again is neither read nor taken for another log's."""
    if "archive" in where:
        node.release = archived(node.root / "archive", FaultyDisk(node.apart))
    segment = finished(node.root, 5, A)
    if "spool" in where:
        node.spooling(5)
    capture = node.start()
    assert payloads(capture) == [A]
    record(capture, Position(1, 5, FAR))
    assert capture.release(Position(1, 5, FAR)) == (5,)
    resume = record(capture, Position(1, 5, FAR))
    assert [id for id, _ in resume.open] == [5]
    segment.link.hardlink_to(segment.commitlog)
    segment.sync(completed=True)
    for again in (capture, node.restart(resume)):
        assert payloads(again) == []
        assert again.losses == ()
    record(again, Position(1, 5, FAR))
    assert again.release(Position(1, 5, FAR)) == (5,)
    assert not segment.link.exists()
    segment.discard()
    finished(node.root, 6, B)
    assert payloads(again) == [B]
    if where in ("delete", "archive"):  # of what the spool had copied nobody can see the end
        assert [id for id, _ in again.open_segments()] == [6]


@pytest.mark.parametrize("id", [5, 6], ids=["released", "in the spool"])
def test_another_log_is_found_out_beside_spool_and_archive(id: int, node: Node) -> None:
    """A host id that came back with another disk, while the spool still has segments of the old one; adopted, the new
    log is read whole, and the old one's are left where they are."""
    node.release = archived(node.root / "archive" / "1", FaultyDisk(node.apart))
    for one, payload in ((5, A), (6, B), (7, C)):
        finished(node.root, one, payload)
    node.spooling(5, 6, 7)
    capture = node.start()
    assert len(capture.read(1)) == 1
    assert len(capture.read(1)) == 1
    resume = record(capture, Position(1, 6, FAR))
    assert capture.release(Position(1, 5, FAR)) == (5,)
    (node.root / "commitlog" / f"CommitLog-7-{id}.log").unlink()
    again = SegmentWriter(node.root, id, parameters=b'{"another":1}')
    again.write(D)
    again.sync(completed=True)
    with pytest.raises(LogEpochError, match=rf"CommitLog-7-{id}\.log.*adopt --new-log"):
        payloads(node.restart(resume))
    adopted = node.restart(Resume(Position(2, -1, 0)))
    assert payloads(adopted) == [D]
    assert adopted.losses == ()
    assert node.spool.left_behind() == (node.root / "spool" / "1",)


def test_what_is_kept_in_cdc_raw_is_never_read_again(tmp_path: Path) -> None:
    """on_release = keep, also over restarts; whoever removes it later loses nothing."""
    node = Node(tmp_path)
    node.release = KEPT
    first, second = finished(tmp_path, 5, A), finished(tmp_path, 6, B)
    capture = node.start()
    assert payloads(capture) == [A, B]
    resume = record(capture, Position(1, 6, FAR))
    assert capture.release(Position(1, 6, FAR)) == (5, 6)
    assert node.register.left == {5, 6}
    finished(tmp_path, 7, C)
    assert payloads(capture) == [C]
    assert not capture.finished(Position(1, 6, FAR))
    after = node.restart(resume)
    assert payloads(after) == [C]
    assert first.link.exists()
    assert 5 in node.register.left
    for segment in (first, second):
        segment.link.unlink()
        segment.index.unlink()
    assert payloads(after) == []
    assert after.losses == ()
    node.close()


@pytest.mark.parametrize("release", [KEPT, DELETED], ids=["kept", "deleted"])
def test_litter_that_cannot_go_ends_no_agent(release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index of a log that is gone. Where segments are kept, this user may perhaps only read the directory."""
    node = Node(tmp_path)
    node.release = release
    writers = [finished(tmp_path, id, payload) for id, payload in ((5, A), (6, B), (7, C))]
    capture = node.start()
    assert payloads(capture) == [A, B, C]
    writers[0].link.unlink()
    record(capture, Position(1, 7, FAR))

    def refuse(path: Path, missing_ok: bool = False) -> None:
        del missing_ok
        raise PermissionError(EACCES, "Permission denied", str(path))

    refused = pytest.raises(ServiceError, match=r"cannot delete .*5_cdc.idx: Permission denied")
    with monkeypatch.context() as patch, nullcontext() if release is KEPT else refused:
        patch.setattr(Path, "unlink", refuse)
        capture.release(Position(1, 7, FAR))
    assert writers[0].index.exists()
    node.close()


def test_nothing_is_released_before_a_commit_has_told_of_its_end(tmp_path: Path) -> None:
    """A successor would take it for lost: the record said that it was not read to its end."""
    node = Node(tmp_path)
    segment = SegmentWriter(tmp_path, 5)
    end = segment.write(A)[-1]
    segment.sync()
    capture = node.start()
    assert payloads(capture) == [A]
    at = Position(1, 5, end)
    before = record(capture, at)
    assert before.unread == ((5, 5),)
    assert not capture.news(at)
    segment.sync(completed=True)
    assert payloads(capture) == []
    assert capture.finished(at)
    assert capture.news(at)
    assert capture.release(at) == ()
    told = record(capture, at)
    assert told.unread == ()
    assert capture.release(at) == (5,)
    assert payloads(node.restart(told)) == []
    assert node.register.losses == ()
    again = node.restart(before)
    assert payloads(again) == []
    assert [loss.segments for loss in again.losses] == [(5, 5)]
    node.close()


def test_a_loss_is_told_once_and_its_litter_goes(tmp_path: Path) -> None:
    """drop-oldest, and a crash between the drop and its report."""
    node = Node(tmp_path)
    first, second = finished(tmp_path, 5, A), finished(tmp_path, 6, B)
    capture = node.start()
    assert len(capture.read(1)) == 1
    third = finished(tmp_path, 7, C)
    at = Position(1, 5, FAR)
    resume = record(capture, at)
    second.link.unlink()
    after = node.restart(resume)
    assert payloads(after) == [C]
    (loss,) = after.losses
    key, value = loss_record("c", "h", loss, 99, ["shop.b", "shop.a"])
    assert key == b"c/h/loss/1/6"
    assert json.loads(value) == {
        "kind": "lost",
        "first": {"epoch": 1, "segment": 6, "offset": 0},
        "until": {"epoch": 1, "segment": 7, "offset": 0},
        "segments": [6, 6],
        "tables": ["shop.a", "shop.b"],
        "words": str(loss),
        "seen": 99,
        "version": 1,
    }
    told = record(after, at)
    assert told.reported == ((6, 6),)
    assert not after.news(at)
    node.register.losses = (loss,)
    assert after.news(at)
    third_one = node.restart(replace(told, position=at))
    assert payloads(third_one) == [C]
    assert third_one.losses == ()
    end = Position(1, 7, FAR)
    record(third_one, end)
    assert third_one.release(end) == (5, 7)
    assert list(node.raw.iterdir()) == []
    del first, third
    node.close()


def test_segments_that_cassandra_may_have_deleted_while_no_agent_ran(tmp_path: Path) -> None:
    """cdc_block_writes: false. The one that was being read is lost; of those behind it nobody knows; where Cassandra
    does not delete by itself, only the first is missing: the others were empty."""
    for may_delete, found in ((True, [("lost", (5, 5)), ("unknown", (6, 8))]), (False, [("lost", (5, 5))])):
        root = tmp_path / str(may_delete)
        root.mkdir()
        node = Node(root)
        segment = SegmentWriter(root, 5)
        end = segment.write(A)[-1]
        segment.sync()
        capture = node.start()
        assert payloads(capture) == [A]
        resume = record(capture, Position(1, 5, end))
        segment.link.unlink()
        segment.index.unlink()
        finished(root, 9, B)
        after = node.restart(resume, may_delete)
        assert payloads(after) == [B]
        assert [(loss.kind.value, loss.segments) for loss in after.losses] == found
        assert after.losses[0].first == Position(1, 5, end)
        node.close()


@pytest.mark.parametrize(("late", "gap"), [(500, False), (120_000, True)])
def test_a_node_that_restarted_has_no_gap_in_its_ids(late: int, gap: bool, tmp_path: Path) -> None:
    """They begin anew from the clock: a run's first segment has mutations of the time of its id. One that has later
    ones was not the first, and those before it are gone."""
    node = Node(tmp_path)
    begin = EPOCH // 1000 - late
    before = begin - 500_000
    finished(tmp_path, before, A)
    capture = node.start()
    assert payloads(capture) == [A]
    resume = record(capture, Position(1, before, FAR))
    assert capture.release(Position(1, before, FAR)) == (before,)
    written = deletion(table({"id": "text"}), b"k")
    finished(tmp_path, begin, written)
    after = node.restart(resume, may_delete=True)
    assert payloads(after) == [written]
    assert [loss.segments for loss in after.losses] == ([(before + 1, begin - 1)] if gap else [])
    node.close()


def test_ddl_is_read_in_the_spool_too(node: Node) -> None:
    """A segment that was moved before it was read for DDL is no gap."""
    for id, payload in ((5, A), (6, B)):
        finished(node.root, id, payload)
    node.spooling(5)
    log = SchemaLog(node.raw, KeptSegments(), spool=node.spool)
    log.begin(Position(1, 5, 0), 1)
    log.read(None)
    assert log.read_up_to == Position(1, 7, 0)
    assert log.gaps == []
    node.spooling(6)
    assert log.gaps == []
    log.close()


def test_a_place_that_cannot_take_the_archive_holds_the_release(tmp_path: Path) -> None:
    """Named, and nothing is deleted."""
    node = Node(tmp_path)
    (tmp_path / "file").touch()
    node.release = archived(tmp_path / "file" / "archive")
    segment = finished(tmp_path, 5, A)
    capture = node.start()
    assert payloads(capture) == [A]
    record(capture, Position(1, 5, FAR))
    with pytest.raises(ServiceError, match=r"cannot archive .*file"):
        capture.release(Position(1, 5, FAR))
    assert segment.link.exists()
    node.close()


def test_a_segment_of_the_spool_alone_was_moved_while_it_was_released(node: Node) -> None:
    """By an agent that was fenced in the middle of it: known by where it stands, it is released again."""
    segment, later = finished(node.root, 5, A), finished(node.root, 6, B)
    checksum = header_checksum(later.link)
    node.spool.take(SegmentFiles(5, segment.link, segment.index))
    capture = node.start(Resume(Position(1, 6, 0), ((6, checksum),)))
    assert payloads(capture) == [B]
    record(capture, Position(1, 6, FAR))
    assert capture.release(Position(1, 6, FAR)) == (5, 6)
