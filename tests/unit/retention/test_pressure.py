"""What is done when cdc_raw nears its limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from errno import EACCES
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.ops.headroom import Headroom, NodeLimits
from tailrace.ops.health import HealthBoard
from tailrace.retention.missing import Register
from tailrace.retention.pressure import Mode, Policy, Sized, Tender, final_segments, threshold_of, to_move
from tailrace.retention.spool import Spool, list_both
from tailrace.segments.files import list_cdc_raw
from tests.support.clock import ManualClock
from tests.unit.capture.segments import SegmentWriter

SIZES = st.lists(st.integers(1, 50), max_size=8)


@given(SIZES, st.integers(0, 300), st.integers(0, 300), st.none() | st.integers(0, 200))
def test_the_oldest_go_until_it_is_enough(sizes: list[int], used: int, threshold: int, room: int | None) -> None:
    """Against every shorter choice: no shorter one is enough, and nothing goes that has no room."""
    candidates = [Sized(id, size) for id, size in enumerate(sizes)]
    chosen = to_move(candidates, used, threshold, room)
    assert chosen == tuple(range(len(chosen)))
    gone = sum(sizes[: len(chosen)])
    assert not chosen or used - sum(sizes[: len(chosen) - 1]) >= threshold
    assert room is None or gone <= room
    if len(chosen) < len(sizes):
        assert used - gone < threshold or (room is not None and gone + sizes[len(chosen)] > room)


@pytest.mark.parametrize(
    ("limits", "percent", "threshold"),
    [
        (NodeLimits(None, 32), 75, None),
        (NodeLimits(1000, None), 75, 750),
        (NodeLimits(1000, 32), 75, 750),
        (NodeLimits(100, 32), 75, 36),  # with one segment more than that there is no room for the next
        (NodeLimits(50, 32), 75, 0),
    ],
)
def test_nearly_full_is_before_the_node_refuses(limits: NodeLimits, percent: int, threshold: int | None) -> None:
    assert threshold_of(limits, percent) == threshold


@dataclass
class Node:
    """A cdc_raw of finished segments 1, 2, ... of 4096 bytes each, and who tends it. `limit` is in segments."""

    root: Path
    mode: Mode = Mode.SPOOL
    limit: int | None = 8
    spool_limit: int = 1 << 20
    clock: ManualClock = field(default_factory=ManualClock)
    register: Register = field(default_factory=Register)
    board: HealthBoard = field(default_factory=lambda: HealthBoard(lambda: 0.0))
    _tender: Tender | None = None

    @property
    def spool(self) -> Spool:
        """Read from outside."""
        return Spool(self.root / "spool", self.spool_limit)

    def fill(self, ids: Sequence[int], completed: bool = True, index: bool = True) -> list[SegmentWriter]:
        writers = [SegmentWriter(self.root, id) for id in ids]
        for writer in writers:
            writer.write(b"a" * 10)
            if index:
                writer.sync(completed)
        return writers

    def tend(self) -> Headroom:
        if self._tender is None:
            policy = Policy(mode=self.mode, percent=50)
            total = None if self.limit is None else self.limit * 4096
            limits = NodeLimits(total, None, False)
            self._tender = Tender(
                self.root / "cdc_raw", self.spool, self.register, policy, self.board, lambda: limits, self.clock
            )
        found = self._tender.tend()
        assert found is not None
        return found

    def raw(self) -> list[int]:
        """Ids in cdc_raw whose log stands there."""
        return [files.id for files in list_cdc_raw(self.root / "cdc_raw").segments if files.log is not None]

    def spooled(self) -> list[int]:
        return [files.id for files in self.spool.listing().segments if files.log is not None]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_below_the_limit_nothing_moves(node: Node) -> None:
    node.fill([1, 2, 3])
    found = node.tend()
    assert (node.raw(), node.spooled()) == ([1, 2, 3], [])
    assert not node.spool.root.exists()
    assert node.board.now.degraded == {}
    assert (found.limit, found.spooled) == (8 * 4096, 0)
    assert found.used == sum(path.stat().st_size for path in (node.root / "cdc_raw").iterdir())


def test_near_the_limit_the_oldest_finished_ones_are_spooled(node: Node) -> None:
    """As many as it takes; those without index, and the one that is written, stay."""
    node.fill([2], index=False)
    node.fill([1, 3, 4, 5])
    node.fill([6], completed=False)
    found = node.tend()
    assert (node.raw(), node.spooled()) == ([2, 5, 6], [1, 3, 4])
    assert found.used < 4 * 4096
    assert found.spooled > 3 * 4096
    assert node.board.now.counts["spooled"] == 3
    assert node.board.now.degraded == {}
    assert node.board.now.headroom == found


def test_what_is_final_is_told_without_reading_it(node: Node) -> None:
    """COMPLETED, a later index, or no link in the commit log any more."""
    one, two, three, four = node.fill([1, 2, 3, 4], completed=False)
    del one, two
    assert [files.id for files in final_segments(list_cdc_raw(three.raw))] == [1, 2, 3]
    four.discard()
    assert [files.id for files in final_segments(list_cdc_raw(three.raw))] == [1, 2, 3, 4]


def test_a_copy_under_a_later_name_makes_no_segment_final(node: Node) -> None:
    """Its header says another id: the segment that Cassandra writes is not moved."""
    (segment,) = node.fill([1], completed=False)
    (segment.raw / "CommitLog-7-2.log").write_bytes(segment.link.read_bytes())
    (segment.raw / "CommitLog-7-2_cdc.idx").write_text("100\nCOMPLETED")
    assert 1 not in [files.id for files in final_segments(list_cdc_raw(segment.raw))]


def test_a_full_spool_holds_and_says_so(node: Node) -> None:
    node.spool_limit = 2 * 4200
    node.fill([1, 2, 3, 4, 5, 6])
    node.tend()
    assert (node.raw(), node.spooled()) == ([3, 4, 5, 6], [1, 2])
    degraded = node.board.now.degraded
    assert degraded["spool"] == f"the spool is full: agent.spool_bytes = {2 * 4200}"
    assert degraded["headroom"].startswith("0 MiB of 0 MiB in cdc_raw (50 %)")
    for id in (1, 2, 3):
        for directory in (node.root / "cdc_raw", node.spool.directory):
            for path in directory.glob(f"CommitLog-7-{id}*"):
                path.unlink()
    node.tend()
    assert node.board.now.degraded == {}


def test_a_spool_that_cannot_be_made_holds_and_says_so_before_it_is_needed(node: Node) -> None:
    (node.root / "spool").touch()
    node.fill([1, 2])
    node.tend()
    assert f"{node.root / 'spool'} is not a directory" in node.board.now.degraded["spool"]
    node.fill([3, 4, 5])
    node.tend()
    assert node.raw() == [1, 2, 3, 4, 5]
    assert "Not a directory" in node.board.now.degraded["spool"]
    assert "headroom" in node.board.now.degraded


def test_hold_moves_nothing_and_warns(tmp_path: Path) -> None:
    node = Node(tmp_path, Mode.HOLD)
    node.fill([1, 2, 3, 4, 5])
    node.tend()
    assert (node.raw(), node.spooled()) == ([1, 2, 3, 4, 5], [])
    assert list(node.board.now.degraded) == ["headroom"]


def test_drop_oldest_deletes_what_is_unread_and_leaves_a_trace(tmp_path: Path) -> None:
    """The index: by it a successor finds the loss too. What must be kept is not dropped, nor what is published."""
    node = Node(tmp_path, Mode.DROP_OLDEST)
    node.register.left = frozenset({1})
    node.fill([1, 2, 3, 4, 5, 6])
    node.tend()
    assert node.raw() == [1, 2, 3, 4, 5, 6]  # before Kafka has said what must be kept
    node.register.spared = frozenset({2})
    node.tend()
    assert node.raw() == [1, 2, 6]
    assert [files.id for files in list_cdc_raw(tmp_path / "cdc_raw").segments] == [1, 2, 3, 4, 5, 6]
    assert node.board.now.counts == Counter(dropped=3)


def test_what_cannot_be_dropped_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And how full cdc_raw is."""
    node = Node(tmp_path, Mode.DROP_OLDEST)
    node.register.spared = frozenset()
    node.fill([1, 2, 3, 4, 5, 6])

    def refuse(path: Path, missing_ok: bool = False) -> None:
        del missing_ok
        raise PermissionError(EACCES, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        node.tend()
    assert node.raw() == [1, 2, 3, 4, 5, 6]
    assert sorted(node.board.now.degraded) == ["headroom", "spool"]
    assert "CommitLog-7-1.log: Permission denied" in node.board.now.degraded["spool"]
    node.tend()
    assert node.board.now.counts == Counter(dropped=3)
    assert node.board.now.degraded == {}


def test_without_a_known_limit_nothing_moves_and_that_is_said(tmp_path: Path) -> None:
    node = Node(tmp_path, limit=None)
    node.fill(range(1, 20))
    assert "limit is unknown" in str(node.tend())
    assert len(node.raw()) == 19


def test_what_the_node_links_again_is_deleted_where_the_spool_has_it(node: Node) -> None:
    """Its replay after a crash links what the commit log still has; that would count against the limit once more."""
    writers = node.fill([1, 2, 3, 4, 5])
    node.tend()
    assert node.spooled() == [1, 2]
    writers[0].link.hardlink_to(writers[0].commitlog)
    writers[0].index.write_text("4096\nCOMPLETED")
    node.tend()
    assert (node.raw(), node.spooled()) == ([3, 4, 5], [1, 2])
    assert [files.doubles for files in list_both(node.root / "cdc_raw", node.spool).segments] == [()] * 5


def test_published_segments_that_were_left_are_not_spooled(node: Node) -> None:
    """on_release = keep: they are the operator's."""
    node.register.left = frozenset({1, 2, 3})
    node.fill([1, 2, 3, 4, 5])
    node.tend()
    assert (node.raw(), node.spooled()) == ([1, 2, 3], [4, 5])


def test_the_rate_tells_when_it_will_be_full(node: Node) -> None:
    node.fill([1])
    node.tend()
    node.clock.now = 10
    node.fill([2])
    found = node.tend()
    assert found.rate == pytest.approx(410, rel=0.01)
    assert found.seconds == pytest.approx(6 * 10, rel=0.01)
