"""The contract of purging: deletions are forgotten a merge horizon after they were written and came, all else stays."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any, ClassVar
from uuid import UUID

import pytest

from tailrace_schemas.change import Change, Op, Origin
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.sinks.protocol import Sink, write_here
from tests.support.expiry import SECOND, Time, expiring
from tests.support.shop import PLAIN
from tests.support.shop import WIDE as WITH_PLAINS_ID
from tests.unit.spark.cassandra import Log, source
from tests.unit.spark.sinks.contract import piece

WIDE = replace(WITH_PLAINS_ID, id=UUID(int=9))
HORIZON = 1_000
NOW = 100_000
SWEEP = 60
"""In seconds; a sink may sweep as seldom."""


def at(seconds: int) -> int:
    """A write time, in microseconds, so many seconds from NOW."""
    return (NOW + seconds) * SECOND


def write(sink: Sink, *changes: Change) -> Summary:
    """One micro-batch."""
    return write_here(sink, [piece(changes)])


def changes() -> list[Change]:
    """Of a row in each table that is shown, and of what only deletes or expires."""
    plain, wide = Log(PLAIN), Log(WIDE)
    return [
        plain.insert((1,), (), at(0), v="a"), plain.update((1,), (), at(1), w=None), plain.delete((2,), (), at(0)),
        plain.delete_partition((3,), at(2)), expiring(plain.update((4,), (), at(0), v="x"), NOW + 5),
        wide.insert((1,), (1,), at(0), v="a"), wide.static((1,), at(0), s=None),
        wide.delete_range((1,), (5,), (6,), at(0)),
    ]  # fmt: skip


class PurgingContract:
    """Give `purged` as a fixture: a Followed that is new and empty, whose sinks have HORIZON, and how many states or
    documents it keeps, which of the changes above are `states`; `side_by_side` where several processes may write."""

    states: ClassVar[int] = 7
    side_by_side: ClassVar[bool] = False

    @pytest.fixture
    def time(self) -> Time:
        return Time(NOW)

    def test_what_only_deletes_is_forgotten_and_what_is_shown_stays(self, purged: Any, time: Time) -> None:
        def shown() -> object:
            return purged.rows(PLAIN, "id", "v", "w"), purged.rows(WIDE, "id", "c", "s", "v")

        with closing(purged.open(time)) as sink:
            write(sink, *changes())
            for now in (NOW + SWEEP, NOW + HORIZON - 1):
                time.now = now
                sink.sweep()
                assert shown() == ([(1, "a", None)], [(1, 1, None, "a")])
                assert purged.kept() == self.states
            time.now = NOW + HORIZON + SWEEP + 1
            sink.sweep()
            assert shown() == ([(1, "a", None)], [(1, 1, None, "a")])
            assert purged.kept() == 2
            everything = purged.everything()
            time.now += SWEEP
            sink.sweep()
            assert purged.everything() == everything

    def test_of_a_row_the_older_tombstone_goes_and_the_newer_one_stays(self, purged: Any, time: Time) -> None:
        """So a write between the two is merged, and one that the newer tombstone covers shows nothing."""
        log = Log(PLAIN)
        with closing(purged.open(time)) as sink:
            write(sink, log.insert((1,), (), at(0), v=None), log.update((1,), (), at(5), w=None))
            time.now = NOW + HORIZON + 2
            sink.sweep()
            between = [log.update((1,), (), at(4), v="x"), log.update((1,), (), at(4), w=7)]
            assert write(sink, *between) == Summary(2, 1)
            assert write(sink, log.update((1,), (), at(0), v="late")) == Summary(0, 0, 1)
        assert purged.rows(PLAIN, "id", "v", "w") == [(1, "x", None)]

    def test_what_came_late_is_kept_as_long(self, purged: Any, time: Time) -> None:
        log = Log(PLAIN)
        with closing(purged.open(time)) as sink:
            write(sink, log.delete((2,), (), at(-50_000)), log.delete_partition((3,), at(-50_000)))
            time.now = NOW + HORIZON - 1
            sink.sweep()
            assert purged.kept() == 2
            assert write(sink, log.insert((2,), (), at(-50_001), v="older")) == Summary(1, 0)
            time.now = NOW + HORIZON + SWEEP
            sink.sweep()
            assert purged.kept() == 0

    def test_what_is_as_old_as_what_was_forgotten_is_set_aside(self, purged: Any, time: Time) -> None:
        """By another process too, which may have had the table open. What a snapshot reads is not."""
        log, other = Log(PLAIN), Log(WIDE)
        with closing(purged.open(time)) as sink, closing(purged.open(time)) as another:
            write(sink, log.delete((2,), (), at(5)), log.insert((1,), (), at(6), v="a"))
            if self.side_by_side:
                write(another, log.delete((1,), (), at(5)))
            time.now = NOW + HORIZON + SWEEP
            sink.sweep()
            late, newer = log.insert((2,), (), at(5), v="again"), log.insert((3,), (), at(6), v="b")
            read = replace(log.insert((4,), (), at(1), v="read"), op=Op.READ)
            snapshot = replace(log.insert((5,), (), at(1), v="s"), source=replace(source(), origin=Origin.SNAPSHOT))
            unconcerned = other.insert((1,), (1,), at(0), v="other")
            assert write(another, late, newer, read, snapshot, unconcerned) == Summary(4, 4, 1)
            assert purged.rows(PLAIN, "id") == [(1,), (3,), (4,), (5,)]
            [letter] = purged.letters.all
            assert str(at(5)) in letter.reason
            assert "merge_horizon" in letter.reason
            assert write(sink, log.delete((1,), (), at(4))) == Summary(0, 0, 1)
