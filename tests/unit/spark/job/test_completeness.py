"""What is known to be complete: by hosts' progress, and by what the stream has written. It never runs ahead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.position import Position
from tailrace_schemas.progress import Progress
from tailrace_spark.job.completeness import Completeness, Ends, WatermarkTracker, published_to

POSITION = Position(1, 2, 3)
TOPICS = ("t.a", "t.b")


def progress(host: str, complete_to: int | None, parked: int = 0) -> Progress:
    """A host's newest record."""
    return Progress("c", host, POSITION, POSITION, 9_999, True, parked, 0, complete_to)


def test_the_slowest_host_decides() -> None:
    found = published_to([progress("a", 5_000), progress("b", 4_000)], {"a", "b"}, 1_000)
    assert found == Completeness(3_000, "host b")


@pytest.mark.promise("log-tables.watermark")
@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([], "no host has published progress yet"),
        ([progress("a", 5_000)], "host b has published no progress yet"),
        ([progress("a", 5_000), progress("b", None)], "host b has not published its log to the end yet"),
        ([progress("a", 5_000), progress("b", 5_000, parked=2)], "host b has 2 parked mutations: see tailrace parked"),
    ],
)
def test_without_any_of_its_hosts_nothing_is_known(records: list[Progress], words: str) -> None:
    found = published_to(records, {"a", "b"} if records else set(), 0)
    assert found.time is None
    assert found.waits_for.startswith(words)


def test_a_host_that_left_the_ring_counts_until_it_is_retired() -> None:
    found = published_to([progress("a", 5_000), progress("gone", 100)], {"a"}, 0)
    assert found == Completeness(100, "host gone, which is not in the ring any more: see tailrace hosts retire")


def step(marks: WatermarkTracker, published: int | None, ends: Ends, written: Ends) -> dict[str, int | None]:
    """The times of both topics."""
    found = marks.step(Completeness(published, "host a"), ends, written, TOPICS)
    return {topic: complete.time for topic, complete in found.items()}


@pytest.mark.promise("log-tables.watermark")
def test_a_topic_is_complete_once_the_stream_has_written_up_to_its_ends() -> None:
    marks = WatermarkTracker()
    ends = {("t.a", 0): 10, ("t.a", 1): 5, ("t.b", 0): 0}
    assert step(marks, 1_000, ends, {}) == {"t.a": None, "t.b": 1_000}, "nothing was ever written to b"
    # Other ends, of changes that are later than the mark: they are not waited for.
    later = {("t.a", 0): 99, ("t.a", 1): 99, ("t.b", 0): 7}
    assert step(marks, 2_000, later, {("t.a", 0): 10, ("t.a", 1): 4}) == {"t.a": None, "t.b": 1_000}
    assert step(marks, 2_000, later, {("t.a", 0): 10, ("t.a", 1): 5}) == {"t.a": 1_000, "t.b": 1_000}
    assert step(marks, 2_000, later, dict.fromkeys(later, 99)) == {"t.a": 2_000, "t.b": 2_000}
    assert step(marks, 3_000, later, dict.fromkeys(later, 99)) == {"t.a": 3_000, "t.b": 3_000}


def test_what_it_waits_for_is_told() -> None:
    marks = WatermarkTracker()
    [found] = marks.step(Completeness(5, "host a"), {("t.a", 0): 1}, {}, ["t.a"]).values()
    assert found == Completeness(None, "the stream, which has not written everything yet")
    [found] = marks.step(Completeness(5, "host a"), {("t.a", 0): 1}, {("t.a", 0): 1}, ["t.a"]).values()
    assert found == Completeness(5, "host a")
    [found] = marks.step(Completeness(None, "host b is away"), {}, {}, ["t.a"]).values()
    assert found == Completeness(5, "host b is away"), "what was complete stays so"


@pytest.mark.promise("log-tables.watermark")
@pytest.mark.slow
@given(st.data())
def test_it_never_runs_ahead_of_the_data(data: st.DataObject) -> None:
    """A history of one partition: each moment it grows, hosts publish, the stream writes some of what is there."""
    marks, end, written, published = WatermarkTracker(), 0, 0, 0
    needed: list[tuple[int, int]] = []
    for moment in range(data.draw(st.integers(1, 20))):
        end += data.draw(st.integers(0, 3))
        if data.draw(st.booleans()):
            published = moment
            needed.append((published, end))  # all of before that time is at or below this offset
        written = data.draw(st.integers(written, end))
        seen = data.draw(st.integers(end, end + 2))  # the ends are asked for later
        complete = step(marks, published, {("t.a", 0): seen}, {("t.a", 0): written})["t.a"]
        end = max(end, seen)
        for time, offset in needed:
            if complete is not None and time <= complete:
                assert offset <= written
