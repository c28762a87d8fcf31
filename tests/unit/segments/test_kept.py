"""Segments without an index: published from their open files where they hold changes, passed over where not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tailrace.capture import recovery
from tailrace.capture.cdcraw import CdcRaw
from tailrace.history.schema import SchemaHistory
from tailrace.retention.missing import Register
from tailrace.retention.spool import Spool
from tailrace.schema.ddl_log import SchemaLog
from tailrace.segments import kept
from tailrace.segments.files import list_cdc_raw
from tailrace.segments.kept import KeptSegments, Unindexed, interest_in
from tailrace.state import Missing, Resume
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.position import Position
from tests.unit.capture.segments import SegmentWriter, written
from tests.unit.mutations import EPOCH, deletion, mutation
from tests.unit.tables import table

TRACKED = table({"id": "text"})
PLAIN = replace(table({"id": "text"}, name="plain", table_id=UUID(int=2)), cdc=False)
LOG = replace(PLAIN, name="log", id=UUID(int=3))
HISTORY = SchemaHistory().learn([TRACKED, PLAIN, LOG])[0]
FAR = 1 << 30


class Node:
    """A node's directories, and an agent's process beside it: both of its readers, and what outlives sessions."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self.root = root
        self._stack = stack
        self.start()

    def start(self, resume: Resume | None = None, *, early: bool = False) -> None:
        """A process, in which nothing is known but the record."""
        resume = resume or Resume()
        (self.root / "cdc_raw").mkdir(exist_ok=True)
        self.kept, self.register = KeptSegments(Unindexed()), Register()
        self.spool = Spool(self.root / "spool", 1 << 30)
        self.log = SchemaLog(self.root / "cdc_raw", self.kept, spool=self.spool)
        self._stack.callback(self.log.close)
        self.log.begin(resume.schema, 1)
        self.session(resume, early=early)

    def session(self, resume: Resume, *, early: bool = False) -> None:
        """A session with Kafka in this process."""
        self.capture = CdcRaw(
            self.root / "cdc_raw",
            resume,
            spool=self.spool,
            register=self.register,
            early=early,
            kept_segments=self.kept,
            commitlog=lambda: self.root / "commitlog",
        )
        self._stack.callback(self.capture.close)

    def segment(self, id: int, *payloads: bytes) -> SegmentWriter:
        """One that has these, of which nothing is released yet."""
        return written(self.root, id, *payloads)

    def begun(self) -> SegmentWriter:
        """The first segment, all of which is read."""
        first = self.segment(4, some(4))
        first.sync(completed=True)
        assert self.read() == [(4, some(4))]
        return first

    def published(self) -> Resume:
        """The record once that is published."""
        return self.record(Position(1, 4, self.begun().at))

    def follow(self, history: SchemaHistory = HISTORY) -> None:
        """As the loop does it."""
        self.log.read(None)
        self.log.sift(lambda: interest_in(history))

    def read(self) -> list[tuple[int, bytes]]:
        """What is released now: segments and payloads."""
        entries = []
        while some := self.capture.read(100):
            entries += some
            self.follow()
        self.follow()
        while some := self.capture.read(100):
            entries += some
        return [(entry.position.segment, entry.payload) for entry in entries]

    def record(self, position: Position) -> Resume:
        """Commit a position: what Kafka then has."""
        unread, reported = self.capture.unread(position), self.capture.reported(position)
        resume = Resume(
            position, self.capture.open_segments(), unread=unread, reported=reported, schema=self.log.read_up_to
        )
        self.capture.committed(position, self.capture.losses)
        return resume


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with ExitStack() as stack:
        yield Node(tmp_path, stack)


def some(number: int) -> bytes:
    return deletion(TRACKED, b"k%d" % number)


def other(number: int) -> bytes:
    return deletion(PLAIN, b"k%d" % number)


@pytest.mark.promise("agent.no-index")
def test_a_replay_that_makes_no_index_loses_nothing(node: Node) -> None:
    """The segment is gone from both directories when it is read, before a later one, each change once."""
    segment = node.segment(5, some(1), other(2), some(3))
    node.follow()
    assert node.read() == []
    later = node.segment(6, some(4))
    segment.vanish()
    assert node.read() == [(5, some(1)), (5, other(2)), (5, some(3))]
    later.sync(completed=True)
    assert node.read() == [(6, some(4))]
    assert node.capture.losses == ()


def test_order_is_kept_where_both_come_together(node: Node) -> None:
    """The later segment has its index by the time at which the earlier one is found to be gone."""
    _, segment = node.segment(5, some(5)), node.segment(6, some(6))
    node.follow()
    segment.sync(completed=True)
    (node.root / "cdc_raw" / "CommitLog-7-5.log").unlink()
    assert [id for id, _ in node.read()] == [5, 6]


def test_one_that_still_stands_is_read_before_it_is_passed_over(node: Node) -> None:
    """Replay has written the later index, and is about to delete the earlier segment."""
    _, segment = node.segment(5, some(5)), node.segment(6, some(6))
    segment.sync(completed=True)
    assert [id for id, _ in node.read()] == [5, 6]


def test_no_segment_is_passed_over_before_it_is_judged(node: Node) -> None:
    _, segment = node.segment(5, some(5)), node.segment(6, some(6))
    segment.sync(completed=True)
    assert node.capture.read(9) == []
    assert node.capture.unjudged == Position(1, 6, 0)
    node.follow()
    assert [entry.position.segment for entry in node.capture.read(9)] == [5]
    assert node.capture.unjudged is None


def test_what_holds_no_change_is_let_go_at_once(node: Node) -> None:
    """Its disk space too."""
    segment = node.segment(5, other(1))
    node.segment(6, some(1))
    node.follow()
    segment.vanish()
    node.follow()
    assert node.kept.unindexed.holding == frozenset()
    assert node.read() == []
    assert node.capture.losses == ()


def test_writes_to_a_table_without_cdc_beside_one_with_cdc_are_no_changes(node: Node) -> None:
    """Nothing is read again, nothing is missed by a successor, and nobody is warned: most segments may be such."""
    first = node.begun()
    segment = node.segment(5, other(1), mutation((PLAIN, b"k", EPOCH), (LOG, b"k", EPOCH)))
    node.segment(6, other(2))
    node.follow()
    assert node.kept.unindexed.segments == {6}
    assert node.read() == []
    resume = node.record(Position(1, 4, first.at))
    assert resume.unread == ()
    segment.vanish()
    assert node.read() == []
    node.start(resume)
    assert node.read() == []
    assert node.capture.losses == ()


def test_a_change_may_stand_behind_an_update_without_cdc(node: Node) -> None:
    segment = SegmentWriter(node.root, 5)
    both = mutation((PLAIN, b"k", EPOCH), (TRACKED, b"k", EPOCH))
    segment.write(other(1), both)
    node.segment(6, other(2))
    node.follow()
    assert node.kept.unindexed.holding == {5}
    segment.vanish()
    assert node.read() == [(5, other(1)), (5, both)]


def test_a_batch_of_very_many_tables_is_a_change(node: Node) -> None:
    """The number of its updates takes two bytes from 128 on."""
    tables = [replace(TRACKED, name=f"t{number}", id=UUID(int=100 + number)) for number in range(128)]
    batch = mutation(*[(one, b"k", EPOCH) for one in tables])
    segment = node.segment(5, batch)
    node.segment(6, other(1))
    node.follow(HISTORY.learn(tables)[0])
    segment.vanish()
    assert [entry.payload for entry in node.capture.read(9)] == [batch]


def test_one_that_names_an_unknown_table_is_kept(node: Node) -> None:
    """Whether it holds a change is for those to say who read its DDL."""
    unknown = replace(TRACKED, name="unknown", id=UUID(int=9))
    node.segment(5, mutation((PLAIN, b"k", EPOCH), (unknown, b"k", EPOCH)))
    node.segment(6, other(1))
    node.follow()
    assert node.kept.unindexed.holding == {5}


def test_what_was_written_while_cdc_was_off_is_no_change(node: Node) -> None:
    """ALTER ... WITH cdc = false: no segment has an index for this table's writes from there on."""
    segment = SegmentWriter(node.root, 5)
    _, off, _ = segment.write(some(1), some(2), some(3))
    node.segment(6, some(4))
    node.segment(7, some(5))
    untracked = replace(TRACKED, cdc=False)
    node.follow(HISTORY.define(Position(1, 5, off), (untracked,))[0])
    assert node.kept.unindexed.holding == {5}
    assert node.kept.unindexed.segments == {5, 7}


def test_an_index_that_comes_later_counts(node: Node) -> None:
    """The normal life of a segment: it is read by its index, and can be released."""
    segment = node.segment(5, some(1), other(2))
    node.segment(6, some(3))
    node.follow()
    assert node.kept.unindexed.holding == {5}
    assert node.read() == []
    segment.sync(completed=True)
    assert node.read() == [(5, some(1)), (5, other(2))]
    node.record(Position(1, 5, FAR))
    assert node.capture.release(Position(1, 5, FAR)) == (5,)


def require_done(node: Node, end: Position) -> None:
    """Segment 5 is released at its end, and read no more."""
    node.record(end)
    assert node.capture.release(end) == (5,)
    assert node.read() == []
    assert not node.capture.finished(end)


def test_one_that_is_released_is_not_read_again(node: Node) -> None:
    """Nothing is written behind it: the position stays in it, and its open file could be read again and again."""
    segment = node.segment(5, some(1))
    node.follow()
    node.segment(6, other(1))
    segment.vanish()
    assert node.read() == [(5, some(1))]
    require_done(node, Position(1, 5, segment.at))
    assert not node.capture.news(Position(1, 5, segment.at))


def test_one_whose_index_came_and_went_between_two_looks_is_not_read_again(node: Node) -> None:
    """The log's DDL was read without a look at the directory, while the changes were published and released."""
    segment = node.segment(5, some(1))
    node.follow()
    node.segment(6, other(1))
    segment.sync(completed=True)
    assert [entry.position.segment for entry in node.capture.read(9)] == [5]
    assert node.capture.read(9) == []
    require_done(node, Position(1, 5, segment.at))


@pytest.mark.parametrize("read", [False, True])
def test_a_session_that_ends_before_its_commit_repeats_it(node: Node, read: bool) -> None:
    """The open file outlives sessions with Kafka, up to the commit that is behind it."""
    resume = node.published()
    segment = node.segment(5, some(1))
    node.follow()
    node.segment(6, other(1))
    segment.vanish()
    if read:
        assert node.read() == [(5, some(1))]
    node.session(resume)
    assert node.read() == [(5, some(1))]
    node.record(Position(1, 6, 1))
    assert node.kept.unindexed.holding == frozenset()


@pytest.mark.parametrize("gone", ["before", "after"])
def test_one_with_a_parked_mutation_is_kept_though_cassandra_deletes_it(node: Node, gone: str) -> None:
    """In the spool, for this process and later ones, until the mutation can be published."""
    node.begun()
    segment = node.segment(5, some(1), other(2), some(3))
    node.follow()
    node.segment(6, some(4)).sync(completed=True)
    if gone == "before":
        segment.vanish()
    assert node.capture.read(1) == []
    node.follow()
    parked = node.capture.read(1)[0]
    node.capture.keep(frozenset({5}))
    checksum = dict(node.capture.open_segments())[5]
    if gone == "after":
        segment.vanish()
    assert [id for id, _ in node.read()] == [6]
    resume = node.record(Position(1, 6, FAR))
    assert node.capture.release(Position(1, 6, FAR)) == (4, 6)
    for _ in range(2):
        assert list(node.capture.reread(1, 5, checksum, (parked.offset,))) == [parked]
        node.start(resume)
        node.capture.keep(frozenset({5}))
        assert node.read() == []
    node.capture.keep(frozenset())
    assert node.capture.release(Position(1, 6, FAR)) == (5,)
    assert not any(node.spool.directory.glob("CommitLog-*"))
    assert node.capture.losses == ()


@pytest.mark.parametrize("quarantined", [False, True], ids=["parked", "in quarantine"])
def test_early_mode_keeps_one_that_was_deleted_while_it_was_read(node: Node, *, quarantined: bool) -> None:
    """The reader of DDL, which judges whether it holds changes, has not come to its end."""
    node.session(Resume(), early=True)
    segment = node.segment(5, some(1))
    node.follow()
    assert len(node.capture.read(100)) == 1
    segment.write(some(2))
    segment.vanish()
    aside = node.capture.read(100)[0]
    if quarantined:
        node.capture.quarantine(Position(1, 5, 0), DecodeError("no value"))
    else:
        node.capture.keep(frozenset({5}))
    checksum = dict(node.capture.open_segments())[5]
    resume = node.record(aside.position)
    node.start(resume, early=True)
    assert list(node.capture.reread(1, 5, checksum, (aside.offset,))) == [aside]


@pytest.mark.parametrize("gone", ["before", "after"])
def test_one_in_quarantine_is_kept_though_cassandra_deletes_it(node: Node, gone: str) -> None:
    node.begun()
    segment = node.segment(5, some(1), some(2))
    node.follow()
    node.segment(6, some(4)).sync(completed=True)
    if gone == "before":
        segment.vanish()
    assert node.capture.read(1) == []
    node.follow()
    assert node.capture.read(1)
    node.capture.quarantine(Position(1, 5, 0), DecodeError("no value"))
    if gone == "after":
        segment.vanish()
    assert [id for id, _ in node.read()] == [6]
    node.start(replace(node.record(Position(1, 6, FAR)), quarantined=tuple(node.capture.quarantined.values())))
    assert node.read() == []
    assert 5 not in node.capture.release(Position(1, 6, FAR))
    assert (node.spool.directory / segment.link.name).exists()
    assert node.capture.losses == ()


def test_a_successor_reads_on_in_one_that_was_kept_for_a_parked_mutation(node: Node) -> None:
    node.begun()
    segment = node.segment(5, some(1), other(2), some(3))
    node.follow()
    node.segment(6, some(4))
    segment.vanish()
    assert node.capture.read(1) == []
    node.follow()
    parked = node.capture.read(1)[0]
    node.capture.keep(frozenset({5}))
    node.start(node.record(parked.position))
    assert node.read() == [(5, other(2)), (5, some(3))]
    assert node.capture.losses == ()


def test_a_successor_reports_what_it_cannot_read_any_more(node: Node) -> None:
    """The agent dies too: its record names the segment as unread, so that the loss is reported, by its id."""
    first = node.begun()
    segment = node.segment(5, some(1))
    node.segment(6, other(1))
    node.follow()
    assert node.read() == []
    resume = node.record(Position(1, 4, first.at))
    assert (5, 5) in resume.unread
    segment.vanish()
    node.start(resume)
    assert node.read() == []
    assert [(loss.kind, loss.segments) for loss in node.capture.losses] == [(Missing.LOST, (5, 5))]


@pytest.mark.parametrize("tracked", [True, False], ids=["behind a change", "before the first one"])
def test_damage_in_an_open_file_is_a_loss(node: Node, *, tracked: bool) -> None:
    """There is no file to keep in quarantine."""
    first = some(1) if tracked else other(1)
    segment = node.segment(5, first)
    begun = segment.at
    segment.write(some(2))
    segment.patch(begun + 16, b"\x7f")
    node.follow()
    node.segment(6, other(1))
    segment.vanish()
    assert node.read() == [(5, first)]
    assert [(loss.kind, loss.segments) for loss in node.capture.losses] == [(Missing.LOST, (5, 5))]


def test_early_mode_reads_what_was_deleted_before_it_came_there(node: Node) -> None:
    node.session(Resume(), early=True)
    segment = node.segment(5, some(1))
    node.follow()
    node.segment(6, some(2))
    segment.vanish()
    assert node.read() == [(5, some(1)), (6, some(2))]
    assert node.read() == []


@pytest.mark.promise("agent.vanished-segments")
def test_an_index_that_was_deleted_at_once_is_missed(node: Node) -> None:
    """Notification has its name, though no listing ever showed it."""
    node.register.appeared(node.root / "cdc_raw" / "CommitLog-7-7_cdc.idx")
    node.register.appeared(node.root / "cdc_raw" / "notes.idx")
    assert node.read() == []
    assert [(loss.kind, loss.segments) for loss in node.capture.losses] == [(Missing.LOST, (7, 7))]


def deleted(node: Node, *ids: int) -> None:
    """By another process, with their indexes."""
    for id in ids:
        for path in (node.root / "cdc_raw").glob(f"CommitLog-7-{id}*"):
            path.unlink()


@pytest.mark.promise("agent.deleted-segments")
def test_what_somebody_deleted_from_cdc_raw_is_read_from_the_commit_log(node: Node) -> None:
    """While no agent ran, with indexes that no record names; before what is still there, each change once."""
    writers = [SegmentWriter(node.root, id) for id in range(4, 10)]
    ends = writers[0].write(some(4), some(40))
    for writer in writers[1:]:
        writer.write(some(writer.id))
    for writer in writers[:-1]:
        writer.sync(completed=True)
    assert node.read()[0] == (4, some(4))
    resume = replace(node.record(Position(1, 4, ends[0])), schema=Position(1, 6, 0))
    deleted(node, 4, 5, 6, 7)
    node.start(resume)
    assert node.read() == [(4, some(40)), *((id, some(id)) for id in (5, 6, 7, 8))]
    node.record(Position(1, 8, FAR))
    assert node.capture.losses == ()
    assert node.capture.release(Position(1, 8, FAR)) == (4, 5, 6, 7, 8)
    assert node.capture.read(9) == []


@pytest.mark.slow
def test_hundreds_of_deleted_segments_are_read_from_the_commit_log_in_lots(node: Node) -> None:
    """No more of them are open at a time than descriptors allow; some hold nothing."""
    resume = node.published()
    for id in range(5, 304):
        writer = SegmentWriter(node.root, id, size=256)
        writer.write(some(id) if id % 3 else other(id))
        writer.sync(completed=True)
    deleted(node, *range(5, 300))
    node.start(resume)
    ids: list[int] = []
    while not ids or ids[-1] < 302:
        more = node.read()
        assert more, f"stands still behind {ids[-9:]}"
        assert len(node.kept.unindexed.segments) <= 70
        ids += [id for id, payload in more if payload == some(id)]
        node.record(Position(1, more[-1][0], FAR))
    assert ids == [id for id in range(5, 303) if id % 3]
    assert node.capture.losses == ()


@pytest.mark.promise("agent.deleted-segments")
def test_what_waits_for_a_lot_of_its_own_is_not_lost(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record names all of them, as an agent that waited for Kafka saw their indexes."""
    monkeypatch.setattr(recovery, "_LOT", 2)
    first = node.begun()
    writers = [node.segment(id, some(id)) for id in range(5, 11)]
    for writer in writers:
        writer.sync(completed=True)
    node.register.see(list_cdc_raw(node.root / "cdc_raw"))
    resume = node.record(Position(1, 4, first.at))
    assert resume.unread == ((5, 10),)
    deleted(node, *range(4, 10))
    node.start(resume)
    ids: list[int] = []
    while more := node.read():
        ids += [id for id, _ in more]
        node.record(Position(1, ids[-1], FAR))
    assert ids == list(range(5, 11))
    assert node.capture.losses == ()


@pytest.mark.promise("agent.deleted-segments")
def test_a_log_that_was_deleted_without_its_index_is_read_from_the_commit_log(node: Node) -> None:
    first = node.begun()
    for id in (5, 6, 7):
        node.segment(id, some(id)).sync(completed=True)
    node.register.see(list_cdc_raw(node.root / "cdc_raw"))
    resume = node.record(Position(1, 4, first.at))
    for id in (5, 6):
        (node.root / "cdc_raw" / f"CommitLog-7-{id}.log").unlink()
    node.start(resume)
    assert [id for id, _ in node.read()] == [5, 6, 7]
    assert node.capture.losses == ()


@pytest.mark.promise("agent.deleted-segments")
def test_what_somebody_deleted_under_a_running_agent_is_read_or_reported_by_ids(node: Node) -> None:
    """From the commit log, where that still has it; else each id is lost, once. No listing ever showed them."""
    node.published()
    writers = [node.segment(id, some(id)) for id in range(5, 10)]
    for writer in writers:
        writer.sync(completed=True)
        node.register.appeared(writer.index)
    deleted(node, 5, 6, 7, 8)
    for writer in writers[:2]:
        writer.discard()
    assert [id for id, _ in node.read()] == [7, 8, 9]
    assert [(loss.kind, loss.segments) for loss in node.capture.losses] == [(Missing.LOST, (5, 6))]


def test_what_was_never_linked_holds_no_changes(node: Node) -> None:
    """cdc_raw was full: such a segment is judged as any other, and nothing of it is missed."""
    resume = node.published()
    full = node.segment(5, other(1))
    full.link.unlink()
    later = node.segment(6, some(6))
    later.sync()
    node.start(resume)
    assert node.read() == [(6, some(6))]
    assert node.capture.losses == ()


def test_one_that_is_let_go_while_others_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread that watches the directory lets the oldest go when too many are open: that ends no agent."""
    monkeypatch.setattr(kept, "_MOST_DELETED", 2)
    segments = KeptSegments()
    first, second, third = (written(tmp_path, id, some(id)) for id in (5, 6, 7))
    for segment in (first, second):
        segments.keep(segment.link)
        segment.vanish()

    def watched() -> kept.Interest:
        segments.keep(third.link)
        return interest_in(HISTORY)

    with closing(segments):
        segments.unindexed.sift(watched, Position(1, 9, 0))
        assert segments.unindexed.holding == {6}
        assert segments.unindexed.segments == {6, 7}
    assert [record.message.partition(",")[0] for record in caplog.records] == ["segment 5 has no index"]


def test_tables_of_a_keyspace_without_cdc_are_of_no_interest() -> None:
    """A mutation is of one keyspace, and may begin with another of its tables."""
    silent = replace(table({"id": "text"}, keyspace="silent", table_id=UUID(int=3)), cdc=False)
    history = SchemaHistory().learn([TRACKED, PLAIN, silent])[0]
    assert interest_in(history).tables == {TRACKED.id.bytes, PLAIN.id.bytes}
    assert mutation((PLAIN, b"k", EPOCH), (TRACKED, b"k", EPOCH))[1:17] == PLAIN.id.bytes
