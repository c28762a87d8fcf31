"""Reading cdc_raw while Cassandra writes it, and releasing what is done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from tailrace.capture.cdcraw import CdcRaw, Signal, Watch
from tailrace.errors import LogEpochError
from tailrace.segments.open_segment import header_checksum
from tailrace.state import Quarantined, Resume
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.position import Position
from tests.unit.capture.segments import SegmentWriter, header, released, written

A, B, C, D = (letter * 10 for letter in (b"a", b"b", b"c", b"d"))


_opened: list[CdcRaw] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Every reader is closed at the end of its test."""
    yield
    while _opened:
        _opened.pop().close()


def reader(root: Path, resume: Resume | None = None) -> CdcRaw:
    _opened.append(CdcRaw(root / "cdc_raw", resume or Resume()))
    return _opened[-1]


def payloads(capture: CdcRaw, limit: int = 100) -> list[bytes]:
    """What is released now."""
    return [entry.payload for entry in capture.read(limit)]


def release(capture: CdcRaw, position: Position) -> tuple[int, ...]:
    """What goes when this position is committed."""
    capture.committed(position, capture.losses)
    return capture.release(position)


@pytest.mark.promise("agent.index-released")
def test_only_what_the_index_released(tmp_path: Path) -> None:
    """Nothing without an index; then sections up to its offset, those behind it not, whatever stands there."""
    segment, capture = SegmentWriter(tmp_path, 5), reader(tmp_path)
    ends = segment.write(A, B)
    assert payloads(capture) == []
    segment.sync()
    segment.write(C)
    entries = capture.read(100)
    assert [(e.position, e.payload, e.version, e.file) for e in entries] == [
        (Position(1, 5, ends[0]), A, 7, segment.link.name),
        (Position(1, 5, ends[1]), B, 7, segment.link.name),
    ]
    assert payloads(capture) == []
    segment.sync()
    assert payloads(capture) == [C]


@pytest.mark.parametrize("content", ["", "3", "27", "garbage", "0"], ids=repr)
def test_an_index_met_half_way_releases_nothing_new_and_loses_nothing(tmp_path: Path, content: str) -> None:
    """Cassandra truncates it before it writes."""
    segment, capture = SegmentWriter(tmp_path, 5), reader(tmp_path)
    segment.write(A)
    segment.sync()
    assert payloads(capture) == [A]
    segment.write(B)
    segment.index.write_text(content)
    assert payloads(capture) == []
    segment.sync()
    assert payloads(capture) == [B]


def test_segments_follow_each_other_once_the_earlier_is_final(tmp_path: Path) -> None:
    """A later index makes an earlier segment final: it is read to its end, whatever its own index says."""
    first, second, capture = SegmentWriter(tmp_path, 5), SegmentWriter(tmp_path, 12), reader(tmp_path)
    first.write(A)
    first.sync()
    second.write(C)
    assert payloads(capture) == [A]
    first.write(B)
    second.sync()
    assert [payloads(capture), payloads(capture), payloads(capture)] == [[B], [C], []]


def test_a_segment_without_index_below_one_with_an_index_holds_nothing(tmp_path: Path) -> None:
    """It is passed over, left for Cassandra to delete, and known from then on."""
    empty, second, capture = SegmentWriter(tmp_path, 5), SegmentWriter(tmp_path, 6), reader(tmp_path)
    second.write(A)
    second.sync(completed=True)
    assert payloads(capture) == [A]
    assert payloads(capture) == []
    assert release(capture, Position(1, 6, 10_000)) == (6,)
    assert empty.link.exists()
    assert [segment for segment, _ in capture.open_segments()] == [5, 6]
    empty.link.unlink()
    second.discard()
    assert payloads(capture) == []
    assert capture.open_segments() == ()


@pytest.mark.promise("agent.release-after-commit")
@pytest.mark.parametrize("how", ["completed", "discarded", "later"])
def test_a_finished_segment_is_released_only_at_or_below_a_committed_position(tmp_path: Path, how: str) -> None:
    """Not before it is final, not before its last mutation is committed; twice does no harm."""
    segment, capture = SegmentWriter(tmp_path, 5), reader(tmp_path)
    end = segment.write(A, B)[-1]
    segment.sync()
    assert payloads(capture) == [A, B]
    assert not capture.finished(Position(1, 9, 9))
    if how == "completed":
        segment.sync(completed=True)
    elif how == "discarded":
        segment.discard()
    else:
        released(tmp_path, 7, C)
    assert payloads(capture) == ([C] if how == "later" else [])
    assert not capture.finished(Position(1, 5, end - 1))
    assert release(capture, Position(1, 5, end - 1)) == ()
    assert capture.finished(Position(1, 5, end))
    assert segment.link.exists()
    assert release(capture, Position(1, 5, end)) == (5,)
    assert not segment.link.exists()
    assert not segment.index.exists()
    assert release(capture, Position(1, 5, end)) == ()


def test_after_a_crash_of_the_node_the_index_may_name_the_file_s_size(tmp_path: Path) -> None:
    """COMPLETED: the number means nothing, the end marker does."""
    segment, capture = SegmentWriter(tmp_path, 5), reader(tmp_path)
    segment.write(A)
    segment.index.write_text("4096\nCOMPLETED")
    assert payloads(capture) == [A]
    assert payloads(capture) == []
    assert capture.finished(Position(1, 5, 4096))


def test_what_a_cut_off_release_left_is_cleaned_up(tmp_path: Path) -> None:
    """The log went, the index stayed; no loss."""
    first, second = SegmentWriter(tmp_path, 5), SegmentWriter(tmp_path, 6)
    first.write(A)
    first.sync(completed=True)
    second.write(B)
    second.sync()
    resume = Resume(Position(1, 6, 20), ((6, header_checksum(second.link)),))
    first.link.unlink()
    capture = reader(tmp_path, resume)
    assert payloads(capture) == [B]
    assert not first.index.exists()
    assert capture.losses == ()


@pytest.mark.promise("agent.another-log")
def test_another_log_below_the_position_stops_everything(tmp_path: Path) -> None:
    """A segment that was never read, or one of a known id with another header."""
    old = released(tmp_path, 5, A)
    for known in ((), ((5, header_checksum(old.link) ^ 1),)):
        with pytest.raises(LogEpochError, match=r"CommitLog-7-5\.log.*adopt --new-log"):
            reader(tmp_path, Resume(Position(1, 9, 0), known)).read(1)


def test_a_torn_marker_means_later_and_then_quarantine(tmp_path: Path) -> None:
    """A living segment is waited for; of a final one the rest is set aside, its files kept, others go on."""
    segment, capture = SegmentWriter(tmp_path, 5), reader(tmp_path)
    end = segment.write(A)[-1]
    segment.patch(segment.at + 4, b"\x01\x02\x03\x04")
    segment.index.write_text(str(segment.at + 100))
    assert payloads(capture) == [A]
    assert payloads(capture) == []
    assert capture.quarantined == {}
    released(tmp_path, 6, B)
    assert payloads(capture) == [B]
    quarantined = capture.quarantined[5]
    assert (quarantined.segment, quarantined.offset) == (5, end)
    assert quarantined.checksum == header_checksum(segment.link)
    assert "checksum" in quarantined.reason
    assert release(capture, Position(1, 6, 4096)) == ()
    assert segment.link.exists()


def test_a_write_cut_off_by_a_crash_behind_the_index_is_the_end(tmp_path: Path) -> None:
    """Not COMPLETED, final by what came after it, broken behind what was released: nothing was lost."""
    segment, capture = SegmentWriter(tmp_path, 5), reader(tmp_path)
    segment.write(A)
    segment.sync()
    segment.patch(segment.at, b"\x00\x00\x01\x00")
    segment.discard()
    assert payloads(capture) == [A]
    assert payloads(capture) == []
    assert capture.quarantined == {}
    assert capture.finished(Position(1, 5, 4096))


@pytest.mark.parametrize("bad", ["log", "idx"])
def test_a_file_that_cannot_be_read_stops_everything_from_it_on(tmp_path: Path, bad: str) -> None:
    """Nothing of it or behind it is read, again and again, until it can be; what is before it may be released."""
    before, broken, behind = (SegmentWriter(tmp_path, id) for id in (5, 6, 7))
    for segment in (before, broken, behind):
        segment.write(A if segment is before else B)
        segment.sync(completed=True)
    path = broken.link if bad == "log" else broken.index
    path.rename(tmp_path / "aside")
    path.symlink_to("/proc/self/mem")  # the kernel refuses to read its beginning, to root too
    capture = reader(tmp_path)
    assert payloads(capture) == [A]
    for _ in range(2):
        with pytest.raises(ServiceError, match=rf"cannot read .*{path.name}: Input/output error; .*Cassandra's user"):
            capture.read(1)
    assert release(capture, Position(1, 5, 4096)) == (5,)
    assert broken.link.exists()
    assert behind.link.exists()
    path.unlink()
    (tmp_path / "aside").rename(path)
    assert payloads(reader(tmp_path)) == [B]


@pytest.mark.parametrize("at", [0, 5, 13, 15, 19])
def test_a_broken_header_quarantines_the_final_segment(tmp_path: Path, at: int) -> None:
    """Whatever is wrong with it."""
    segment = written(tmp_path, 5, A)
    segment.patch(at, b"\xff")
    segment.sync(completed=True)
    capture = reader(tmp_path)
    assert payloads(capture) == []
    assert list(capture.quarantined) == [5]


@pytest.mark.promise("agent.damaged-segment")
@pytest.mark.parametrize("completed", [True, False])
def test_a_segment_without_the_end_that_its_index_released_is_damaged(tmp_path: Path, completed: bool) -> None:
    """Pages of zeros look like a clean end: the segment is kept and named, and those behind it are read."""
    segment, capture = SegmentWriter(tmp_path, 5), reader(tmp_path)
    segment.write(A)
    start = segment.at
    segment.write(B)
    segment.sync(completed)
    segment.patch(start, bytes(segment.at - start))
    released(tmp_path, 6, C)
    assert [*payloads(capture), *payloads(capture)] == [A, C]
    assert [found.reason for found in capture.quarantined.values()] == [
        f"CommitLog-7-5.log:{start}: the index released {segment.at}, the segment ends here"
    ]
    assert release(capture, Position(1, 6, 99)) == ()


@pytest.mark.promise("agent.damaged-segment")
def test_a_quarantined_segment_stays_so_after_a_restart(tmp_path: Path) -> None:
    """It is neither read nor released."""
    first, second = SegmentWriter(tmp_path, 5), SegmentWriter(tmp_path, 6)
    for segment in (first, second):
        segment.write(A)
        segment.sync(completed=True)
    known = tuple((s.id, header_checksum(s.link)) for s in (first, second))
    capture = reader(tmp_path, Resume(Position(1, 6, 0), known, (Quarantined(5, known[0][1], 20, "why"),)))
    assert payloads(capture) == [A]
    assert payloads(capture) == []
    assert release(capture, Position(1, 9, 0)) == (6,)
    assert first.link.exists()


def test_a_segment_deleted_under_the_reader_is_read_to_its_end(tmp_path: Path) -> None:
    """The open file stays readable; the next segment's index makes it final."""
    segment, capture = SegmentWriter(tmp_path, 5), reader(tmp_path)
    segment.write(A, B)
    segment.sync()
    assert payloads(capture, 1) == [A]
    segment.link.unlink()
    segment.index.unlink()
    assert payloads(capture) == [B]
    released(tmp_path, 6, C)
    assert payloads(capture) == [C]
    assert capture.losses == ()


@pytest.mark.promise("agent.foreign-files")
def test_foreign_files_are_left_alone_with_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each named once."""
    segment, capture = SegmentWriter(tmp_path, 5), reader(tmp_path)
    (segment.raw / "README").touch()
    segment.write(A)
    segment.sync()
    for _ in range(3):
        payloads(capture)
    assert [r.getMessage() for r in caplog.records if "README" in r.getMessage()] == [
        f"{segment.raw}: these files are not Cassandra's and are ignored: README"
    ]
    assert (segment.raw / "README").exists()


def test_a_directory_that_is_not_there_says_which_setting(tmp_path: Path) -> None:
    """And that it can be tried again."""
    with pytest.raises(ServiceError, match=r"agent\.cdc_raw_directory"):
        reader(tmp_path).read(1)


def test_what_is_passed_though_no_index_tells(tmp_path: Path) -> None:
    """All that has an index up to there was read; a segment that has one is waited for, one without it is not."""
    first, second, capture = SegmentWriter(tmp_path, 5), SegmentWriter(tmp_path, 6), reader(tmp_path)
    ends, (end,) = first.write(A, B), second.write(C)
    first.sync()
    # Segment 5 is neither read nor over; what was read of it is passed.
    assert not capture.passed(Position(1, 5, ends[0]), settled=True)
    assert not capture.passed(Position(1, 6, end), settled=True)
    assert payloads(capture) == [A, B]
    assert capture.passed(Position(1, 5, ends[1]), settled=True)
    assert not capture.passed(Position(1, 6, end), settled=True)
    first.sync(completed=True)
    assert payloads(capture) == []
    assert capture.passed(Position(1, 6, 0), settled=True)
    # An index of its own may be about to come.
    assert not capture.passed(Position(1, 6, end), settled=False)
    assert capture.passed(Position(1, 6, end), settled=True)
    second.sync()
    assert not capture.passed(Position(1, 6, end), settled=True)
    assert payloads(capture) == [C]
    assert capture.passed(Position(1, 6, end), settled=False)
    assert not capture.passed(Position(1, 6, end + 1), settled=True)


OTHERS = {"text": b"text", "empty": b"", "zeros": b"\0" * 4096, "header of another": header(3).ljust(4096, b"\0")}


@pytest.mark.promise("agent.no-segment")
@pytest.mark.parametrize("content", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("name", ["CommitLog-7-99.log", "CommitLog-7-6.log"])
def test_a_file_that_is_no_segment_ends_no_segment(tmp_path: Path, content: bytes, name: str) -> None:
    """Though it has a name and an index like a later one: what Cassandra still writes is read to its end, and so are
    later segments, whatever their ids."""
    segment, capture = SegmentWriter(tmp_path, 5), reader(tmp_path)
    segment.write(A)
    segment.sync()
    assert payloads(capture) == [A]
    (segment.raw / name).write_bytes(content)
    (segment.raw / name.replace(".log", "_cdc.idx")).write_text("100\nCOMPLETED")
    segment.write(B)
    assert payloads(capture) == []
    segment.sync()
    assert payloads(capture) == [B]
    segment.sync(completed=True)
    assert payloads(capture) == []
    released(tmp_path, 7, C)
    assert payloads(capture) == [C]
    assert list(capture.quarantined) == [int(name.split("-")[2].split(".")[0])]


def test_an_index_that_goes_back_is_told_and_not_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What was released once stays released."""
    segment, capture = SegmentWriter(tmp_path, 5), reader(tmp_path)
    end = segment.write(A)[-1]
    segment.write(B)
    segment.sync()
    assert payloads(capture, 1) == [A]
    segment.index.write_text(str(end))
    assert payloads(capture) == [B]
    assert f"the CDC index of segment 5 moved back from {segment.at} to {end}" in caplog.text


def test_a_signal_set_before_the_wait_is_not_lost_and_counts_once() -> None:
    """The waiter consumes it."""
    wakeup = Signal()
    wakeup.set()
    wakeup.set()
    assert wakeup.wait(60) is True
    assert wakeup.wait(0) is False
    assert wakeup.wait(-1) is False


def test_another_thread_ends_the_wait() -> None:
    wakeup = Signal()
    threading.Timer(0.01, wakeup.set).start()
    assert wakeup.wait(60) is True


def test_a_signal_handler_may_set_it_in_the_waiting_thread() -> None:
    """SIGALRM arrives while this thread waits."""
    wakeup = Signal()
    before = signal.signal(signal.SIGALRM, lambda *_: wakeup.set())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        assert wakeup.wait(60) is True
    finally:
        signal.signal(signal.SIGALRM, before)


def test_an_index_that_changes_is_noticed(tmp_path: Path) -> None:
    """By file notification, without a poll."""
    wakeup = Signal()
    with Watch(tmp_path, wakeup):
        (tmp_path / "CommitLog-7-1_cdc.idx").write_text("20")
        assert wakeup.wait(60) is True


def test_a_log_that_appears_is_told_of_once(tmp_path: Path) -> None:
    """Linked from elsewhere, as Cassandra does it; what is written into it afterwards is no news."""
    (tmp_path / "elsewhere").touch()
    raw = tmp_path / "cdc_raw"
    raw.mkdir()
    wakeup, appeared = Signal(), list[Path]()
    with Watch(raw, wakeup, appeared.append):
        (raw / "CommitLog-7-1.log").hardlink_to(tmp_path / "elsewhere")
        assert wakeup.wait(60) is True
        (raw / "CommitLog-7-1.log").write_bytes(b"x")
        (raw / "CommitLog-7-1_cdc.idx").write_text("20")
        assert wakeup.wait(60) is True
    assert appeared == [raw / "CommitLog-7-1.log"]


def test_without_notification_the_poll_has_to_do(tmp_path: Path) -> None:
    """A directory that cannot be watched is no error here: reading it will say what is wrong."""
    with Watch(tmp_path / "missing", Signal()):
        pass


@pytest.mark.promise("agent.truncation-everywhere")
def test_whether_a_table_was_written_between_two_places(tmp_path: Path) -> None:
    """By the files of cdc_raw and the spool; it may have been where one is gone, or damaged."""
    table, other = UUID(int=1), UUID(int=2)
    first, second = SegmentWriter(tmp_path, 5), SegmentWriter(tmp_path, 6)
    (a,), (b,) = (first.write(b"\1" + id.bytes + bytes(20)) for id in (table, other))
    (c,) = second.write(b"\1" + table.bytes + bytes(20))
    first.sync(completed=True)
    second.sync()
    capture = reader(tmp_path)
    assert len(payloads(capture)) == 2
    places = [(0, (5, b)), (a - 1, (5, b)), (a, (5, b)), (a, (6, c - 1)), (a, (6, c))]
    found = [capture.may_hold(table, Position(1, 5, after), Position(1, *until)) for after, until in places]
    assert found == [True, True, False, False, True]
    assert capture.may_hold(table, Position(1, 4, 9), Position(1, 5, b))
    assert capture.may_hold(table, Position(2, 5, a), Position(2, 5, b))
    first.patch(b - 9, b"x")
    assert capture.may_hold(table, Position(1, 5, a), Position(1, 5, b))
    first.link.unlink()
    assert capture.may_hold(table, Position(1, 5, a), Position(1, 6, c - 1))
