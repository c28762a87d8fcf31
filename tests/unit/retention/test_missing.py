"""What missing segments mean, by ids alone; and what the register keeps of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.retention.missing import UNWATCHED_SECONDS, Register, unwatched_gaps
from tailrace.segments.files import Listing, SegmentFiles
from tailrace.state import Loss, Missing, Span
from tailrace_schemas.position import Position
from tests.support.clock import ManualClock

# The first segment of a run has the clock's milliseconds.
RUN = 1_795_247_025_000


def listing(*ids: int, indexed: bool = True, spooled: tuple[int, ...] = (), logless: tuple[int, ...] = ()) -> Listing:
    """Segments of cdc_raw, and of the spool; `logless` have an index alone."""
    here = Path("cdc_raw")
    found = [
        SegmentFiles(
            id,
            None if id in logless else here / f"CommitLog-7-{id}.log",
            here / f"CommitLog-7-{id}_cdc.idx" if indexed or id in logless else None,
            id in spooled,
        )
        for id in sorted({*ids, *spooled, *logless})
    ]
    return Listing(tuple(found), ())


def no_run(_: int) -> bool:
    return False


GAPS: list[tuple[str, int, Listing, tuple[Span, ...]]] = [
    ("nothing at all", 10, listing(), ()),
    ("consecutive", 10, listing(11, 12), ()),
    ("some are gone", 10, listing(14, 15), ((11, 13),)),
    ("Cassandra deletes from the oldest on: behind one that stands nothing is missing", 10, listing(11, 15), ()),
    ("an older one stands", 10, listing(9, 14), ()),
    ("an older one stands in the spool, which Cassandra does not see", 10, listing(14, spooled=(9,)), ((11, 13),)),
    ("holes around what is spooled", 10, listing(16, 18, spooled=(12, 14)), ((11, 11), (13, 13), (15, 15))),
    ("an index alone is no log", 10, listing(14, logless=(9,)), ((11, 13),)),
]


@pytest.mark.parametrize(("done", "there", "gaps"), [case[1:] for case in GAPS], ids=[case[0] for case in GAPS])
def test_gaps_of_a_time_when_nobody_watched(done: int, there: Listing, gaps: tuple[Span, ...]) -> None:
    assert unwatched_gaps(done, there, no_run) == gaps


def test_a_restart_of_the_node_is_no_gap() -> None:
    """Ids begin anew from the clock; but a run that began long before the first segment that stands has lost some."""
    there = listing(RUN + 90_000, RUN + 90_001)
    assert unwatched_gaps(RUN, there, lambda id: id == RUN + 90_000) == ()
    assert unwatched_gaps(RUN, there, no_run) == ((RUN + 1, RUN + 89_999),)
    near = listing(RUN + 40)  # no node starts within 40 ms of another start
    assert unwatched_gaps(RUN, near, lambda _: True) == ((RUN + 1, RUN + 39),)


class Node:
    """A register at work."""

    def __init__(
        self, may_delete: bool, done: int = 10, unread: tuple[Span, ...] = (), reported: tuple[Span, ...] = ()
    ) -> None:
        self.clock = ManualClock()
        self.register = Register(lambda: may_delete, self.clock)
        self.register.begin(done, unread, reported)
        self.at = Position(1, 10, 500)

    def look(self, there: Listing, read: int = 10, known: tuple[int, ...] = ()) -> list[tuple[str, Span]]:
        """What is found missing."""
        return [(loss.kind.value, loss.segments) for loss in self.register.look(self.at, read, there, known, no_run)]


@pytest.mark.promise("agent.vanished-segments")
@pytest.mark.parametrize("may_delete", [False, True])
def test_a_segment_that_had_an_index_and_vanished_is_lost(may_delete: bool) -> None:
    """Whoever deletes, watched or not; one without index is empty, and silent; each is found once."""
    node = Node(may_delete)
    assert node.look(listing(11, 12, 13)) == []
    assert node.look(listing(11, 12, 13, 14, 16, indexed=False)) == []
    assert node.look(listing(11, 16)) == [("lost", (12, 13))]
    assert node.look(listing(11, 16)) == []
    assert node.register.losses == (Loss(Missing.LOST, (12, 13), Position(1, 12, 0), Position(1, 14, 0)),)


def test_an_index_without_its_log_is_a_loss() -> None:
    """What drop-oldest leaves."""
    node = Node(False)
    assert node.look(listing(11, 12)) == []
    assert node.look(listing(12, logless=(11,))) == [("lost", (11, 11))]
    assert node.look(listing(12, logless=(11,))) == []


def test_what_was_read_is_open_or_quarantined_is_not_missed() -> None:
    node = Node(True)
    node.look(listing(11, 12, 13, 14))
    assert node.look(listing(15), read=11, known=(12, 13)) == [("lost", (14, 14))]


def test_a_record_tells_a_successor_what_to_miss() -> None:
    """The segment that was being read from its position on, others from their beginning; each once over restarts."""
    before = Node(False)
    before.register.opened(10)
    before.look(listing(10, 11, 12, 14), read=9, known=(10,))
    assert before.register.unread(9) == ((10, 12), (14, 14))
    after = Node(False, 9, before.register.unread(9), before.register.reported(9))
    assert after.look(listing(11, 13, 14), read=9) == [("lost", (10, 10)), ("lost", (12, 12))]
    assert [loss.first for loss in after.register.losses] == [Position(1, 10, 500), Position(1, 12, 0)]
    third = Node(False, 9, after.register.unread(9), after.register.reported(9))
    assert third.look(listing(11, 13, 14, logless=(12,)), read=9) == []


@pytest.mark.promise("agent.vanished-segments")
def test_ids_that_are_missing_are_unknown_only_where_cassandra_deletes_and_nobody_watched() -> None:
    for may_delete, found in ((False, []), (True, [("unknown", (11, 13))])):
        node = Node(may_delete)
        assert node.look(listing(14)) == found
        assert node.look(listing(18)) == [("lost", (14, 14))]  # watched: 15 to 17 were empty


def test_what_another_agent_deleted_is_unknown_wherever_it_stood() -> None:
    """It deletes any finished segment, not from the oldest on as Cassandra does; asked once, after it was the owner."""
    node = Node(False)
    node.register.distrust()
    assert node.look(listing(11, 14, indexed=False)) == [("unknown", (12, 13))]
    assert node.look(listing(11, 14, 17, indexed=False)) == []
    assert unwatched_gaps(10, listing(12, 17, spooled=(14,)), no_run, other_agents=True) == (
        (11, 11),
        (13, 13),
        (15, 16),
    )


def test_a_process_that_slept_has_not_watched() -> None:
    node = Node(True)
    assert node.look(listing(11)) == []
    node.clock.now += UNWATCHED_SECONDS + 1
    assert node.look(listing(14)) == [("lost", (11, 11)), ("unknown", (12, 13))]


@pytest.mark.parametrize(("seconds", "found"), [(2.5, ()), (4.0, (("unknown", (12, 13)),))])
def test_three_seconds_without_a_look_are_too_many(seconds: float, found: tuple[tuple[str, Span], ...]) -> None:
    """Cassandra fills and deletes segments within seconds."""
    node = Node(True)
    assert node.look(listing(11)) == []
    node.clock.now += seconds
    assert node.look(listing(14)) == [("lost", (11, 11)), *found]


def test_unknown_ids_are_reported_once_over_restarts() -> None:
    """Those that come to be missing later are reported then."""
    node = Node(True)
    assert node.look(listing(14, indexed=False)) == [("unknown", (11, 13))]
    again = Node(True, 10, (), node.register.reported(10))
    assert again.look(listing(14)) == []
    later = Node(True, 10, (), node.register.reported(10))
    assert later.look(listing(20)) == [("unknown", (14, 19))]


def test_a_new_host_misses_nothing() -> None:
    node = Node(True, done=-1)
    node.at = Position(1, -1, 0)
    assert node.look(listing(14), read=-1) == []


def test_losses_outlive_a_session_until_they_are_told() -> None:
    """Found while Kafka was down, when the file is long gone."""
    node = Node(False)
    node.look(listing(11, 12, 13))
    node.look(listing(13))
    node.register.begin(10, (), ())
    assert node.look(listing(13)) == []
    (loss,) = node.register.losses
    assert str(loss) == (
        "segments 11 to 12 had changes to publish, and vanished unread: lost is what stood behind 1/11:0, before 1/13:0"
    )
    node.register.committed(10, (loss,))
    assert node.register.losses == ()
    assert node.register.reported(10) == ((11, 12),)
    node.register.committed(13, ())
    assert node.register.reported(13) == ()
    assert node.register.unread(13) == ()
