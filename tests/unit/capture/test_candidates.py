"""Early mode: reading ahead of the index, and never being contradicted without saying so."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.capture.cdcraw import CdcRaw
from tailrace.publish.reports import loss_record
from tailrace.state import Loss, Missing, Resume
from tailrace_schemas.position import Position
from tests.unit.capture.segments import SegmentWriter, written

A, B, C = (letter * 10 for letter in (b"a", b"b", b"c"))


def early(root: Path, resume: Resume | None = None) -> closing[CdcRaw]:
    """A reader in early mode, closed at the exit."""
    return closing(CdcRaw(root / "cdc_raw", resume or Resume(), early=True))


def payloads(capture: CdcRaw) -> list[bytes]:
    """What can be read now."""
    return [entry.payload for entry in capture.read(100)]


@pytest.mark.promise("agent.early")
def test_what_has_a_marker_is_read_and_what_the_index_says_is_durable(tmp_path: Path) -> None:
    """Without an index nothing is; a section without a marker is not there."""
    segment = SegmentWriter(tmp_path, 5)
    with early(tmp_path) as capture:
        assert payloads(capture) == []
        ends = segment.write(A)
        assert (payloads(capture), capture.durable) == ([A], Position(1, 5, 0))
        segment.sync()
        assert payloads(capture) == []
        assert capture.durable == Position(1, 5, ends[0])
        ends += segment.write(B)
        assert (payloads(capture), capture.durable) == ([B], Position(1, 5, segment.at - 8 - 12 - len(B)))
        segment.sync()
        assert payloads(capture) == []
        assert capture.durable == Position(1, 5, ends[1])


def test_a_segment_that_was_never_used_holds_up_no_later_one(tmp_path: Path) -> None:
    """As Cassandra leaves one that it has allocated ahead where it dies; by the index such a one is passed over too."""
    SegmentWriter(tmp_path, 2).write(B)
    for segment in (3, 4):
        SegmentWriter(tmp_path, segment)
    later = SegmentWriter(tmp_path, 5)
    with early(tmp_path) as capture:
        assert payloads(capture) == [B]
        assert payloads(capture) == []
        later.write(A)
        assert payloads(capture) == [A]


def test_segments_follow_each_other_by_their_markers(tmp_path: Path) -> None:
    """One that Cassandra has allocated ahead is not read; one that has begun ends the one before."""
    first, second = SegmentWriter(tmp_path, 5), SegmentWriter(tmp_path, 6)
    first.write(A)
    with early(tmp_path) as capture:
        assert payloads(capture) == [A]
        assert payloads(capture) == []
        first.write(B)
        second.write(C)
        assert payloads(capture) == [B]
        assert payloads(capture) == [C]
        assert capture.durable == Position(1, 5, 0)
        first.sync(completed=True)
        assert payloads(capture) == []
        assert capture.durable == Position(1, 6, 0)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_segment_is_released_when_its_index_comes_and_never_before(tmp_path: Path, restarted: bool) -> None:
    """One without cdc data never gets one, and is Cassandra's to delete."""
    first, second, third = (SegmentWriter(tmp_path, id) for id in (5, 6, 7))
    first.write(A)
    second.write(B)
    third.write(C)
    resume, end = Resume(), Position(1, 8, 0)
    with early(tmp_path) as capture:
        assert payloads(capture) + payloads(capture) + payloads(capture) == [A, B, C]
        capture.committed(end)
        assert (capture.finished(end), capture.release(end)) == (False, ())
        if restarted:
            resume = Resume(Position(1, 7, 40), capture.open_segments(), unread=capture.unread(Position(1, 7, 40)))
        else:
            second.sync(completed=True)
            assert payloads(capture) == []
            capture.committed(end)
            assert (capture.finished(end), capture.release(end)) == (True, (6,))
    if restarted:
        second.sync(completed=True)
        with early(tmp_path, resume) as capture:
            payloads(capture)
            capture.committed(end)
            assert (capture.finished(end), capture.release(end)) == (True, (6,))
    first.discard()
    first.link.unlink()
    assert second.index.exists() is second.link.exists() is False
    assert third.link.exists()


def test_a_segment_that_vanishes_without_an_index_is_no_loss(tmp_path: Path) -> None:
    """It had no cdc data."""
    first, second = SegmentWriter(tmp_path, 5), SegmentWriter(tmp_path, 6)
    first.write(A)
    with early(tmp_path) as capture:
        assert payloads(capture) == [A]
        first.write(B)
        first.discard()
        first.link.unlink()
        second.write(C)
        assert payloads(capture) + payloads(capture) == [B, C]
        assert (capture.losses, capture.quarantined) == ((), {})


@pytest.mark.promise("agent.early")
def test_what_a_crash_took_back_is_announced(tmp_path: Path) -> None:
    """The position is behind the end of the log as it is now: exactly what stood between is retracted."""
    segment = written(tmp_path, 5, A)
    size = segment.at
    ends = segment.write(B, C)
    with early(tmp_path) as capture:
        assert payloads(capture) == [A, B, C]
        resume = Resume(Position(1, 5, ends[1]), capture.open_segments())
    segment.patch(size, bytes(4096 - size))  # never flushed
    segment.index.write_text("4096\nCOMPLETED")  # the file's length, as the replay at the node's start writes it
    with early(tmp_path, resume) as capture:
        assert payloads(capture) == []
        losses = list(capture.losses)
        assert [one.kind for one in losses] == [Missing.RETRACTED]
        (loss,) = losses
        assert loss == Loss(Missing.RETRACTED, (5, 5), Position(1, 5, size), Position(1, 5, ends[1]))
        key, value = loss_record("c", "h", loss, 7)
        assert key == b"c/h/retracted/1/5"
        assert json.loads(value)["kind"] == "retracted"
        assert "retracted" in str(loss)
        at = Position(1, 5, ends[1])
        capture.committed(at, (loss,))
        assert capture.losses == ()
        assert (capture.finished(at), capture.release(at)) == (True, (5,))


def test_a_later_agent_may_be_an_ordinary_one(tmp_path: Path) -> None:
    """It goes on from the same position, with what the index releases."""
    segment = SegmentWriter(tmp_path, 5)
    ends = segment.write(A)
    with early(tmp_path) as capture:
        assert payloads(capture) == [A]
        resume = Resume(Position(1, 5, ends[0]), capture.open_segments())
    segment.write(B)
    with closing(CdcRaw(tmp_path / "cdc_raw", resume)) as capture:
        assert (payloads(capture), capture.durable) == ([], None)
        segment.sync()
        assert payloads(capture) == [B]
