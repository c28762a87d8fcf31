"""What a compaction of a files sink promises, for tests of each kind of store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import count
from typing import Any, Final
from uuid import UUID, uuid4

import pytest

from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.delivery import Piece
from tailrace_spark.sinks.files import compaction as file_compaction
from tailrace_spark.sinks.files.commits import Commits
from tailrace_spark.sinks.files.compaction import PACK_COMMITS, Compacted, Compaction
from tailrace_spark.sinks.files.outlet import FileLimits
from tailrace_spark.sinks.files.reader import CommittedFiles
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import PLAIN, WIDE, Topic, deliver
from tests.unit.spark.sinks.files.stores import Stored

DAY = 86_400_000_000
HOUR = 3600


def small_batches(numbers: int, topic: Topic) -> Iterator[Piece]:
    """Batches of a few changes of two days and two definitions, the third with a dead letter."""
    old, new = Log(PLAIN), Log(WIDE)
    for number in range(numbers):
        changes = [old.insert((n,), (), DAY * (n % 2) + number, v=f"{number}") for n in range(3)]
        if number % 2:
            changes.append(new.insert((9,), (), number, x=0.5))
        yield topic.piece(*changes, letters=int(number == 2))


def compact(
    stored: Stored,
    *,
    at: float = 0.0,
    hours: float = 24,
    dies_after: int | None = None,
    pack_commits: int = PACK_COMMITS,
) -> Compacted:
    """The command, at a time in seconds."""
    return Compaction(stored.below(dies_after), 1 << 20, lambda: at, pack_commits=pack_commits).run(hours)


def manifests(stored: Stored) -> tuple[int, int]:
    """How many there are of commits, and of packs."""
    return len(stored.store.names("_tailrace/commits")), len(stored.store.names("_tailrace/packs"))


def read(stored: Stored, after: int = -1) -> list[dict[str, Any]]:
    return list(CommittedFiles(stored.store).records(after=after))


FEW_COMMITS: Final = 5
"""Of a pack, for the contract: so few batches make several packs."""


class CompactingContract:
    """Give `stores` as a fixture: each call makes a new, empty store of three batches more than a pack may have."""

    def test_readers_see_the_same_and_fewer_files(self, stores: Callable[[], Stored]) -> None:
        stored, topic = stores(), Topic()
        for piece in small_batches(8, topic):
            deliver(stored, piece)
        before, letters = read(stored), stored.dead_letters()
        followed = [read(stored, after) for after in range(-1, 8)]
        files_before = len(list(CommittedFiles(stored.store).files()))
        done = compact(stored, pack_commits=FEW_COMMITS)
        assert (done.commits, done.removed) == (8, 0)
        assert manifests(stored) == (0, 2)
        assert read(stored) == before
        assert stored.dead_letters() == letters
        assert [read(stored, after) for after in range(-1, 8)] == followed
        found = list(CommittedFiles(stored.store).files())
        assert len(found) == files_before - done.joined + done.made == 6
        assert sum(file.records for file in found) == len(before)
        assert compact(stored, pack_commits=FEW_COMMITS) == Compacted()

    def test_the_stream_goes_on_behind_a_pack(self, stores: Callable[[], Stored]) -> None:
        """One that runs, and one that begins; what comes again is left out."""
        stored, topic = stores(), Topic()
        pieces = list(small_batches(9, topic))
        with closing(stored.open()) as running:
            for piece in pieces[:6]:
                running.write([piece])
                compact(stored, pack_commits=FEW_COMMITS)
            assert running.write([pieces[5]]).rows == 0
        for piece in (*pieces[:7], pieces[7]):
            deliver(stored, piece)
        compact(stored, pack_commits=FEW_COMMITS)
        deliver(stored, pieces[8])
        records = read(stored)
        assert len(records) == sum(len(piece.changes) for piece in pieces)
        assert len({(one["partition"], one["offset"]) for one in records}) == len(records)

    def test_a_stream_that_was_overtaken_does_not_write_into_what_is_packed(self, stores: Callable[[], Stored]) -> None:
        """Its next number was another's, whose manifest was packed and taken away: that name is free, and not to be
        had."""
        stored, topic = stores(), Topic()
        first, second, third = small_batches(3, topic)
        with closing(stored.open()) as stale:
            stale.write([first])
            commits = Commits(stored.store)
            number, _ = commits.last()
            manifest = json.loads(stored.store.read(f"_tailrace/commits/{number:020}.json"))
            overtaking = {**manifest, "files": [], "ends": {}, "dead_letters": None}
            stored.store.write(f"_tailrace/commits/{number + 1:020}.json", json.dumps(overtaking).encode())
            compact(stored, pack_commits=FEW_COMMITS)
            assert manifests(stored)[0] == 0
            with pytest.raises(ServiceError, match="another writer came first"):
                stale.write([second])
            assert len(read(stored)) == len(first.changes)
            stale.write([second])
            stale.write([third])
        assert len(read(stored)) == sum(len(one.changes) for one in (first, second, third))

    def test_a_crash_at_any_step_loses_and_doubles_nothing(self, stores: Callable[[], Stored]) -> None:
        """Readers see the same after it, and the stream and the next compaction go on."""
        for step in count():
            stored, topic = stores(), Topic()
            pieces = list(small_batches(4, topic))
            for piece in pieces[:3]:
                deliver(stored, piece)
            before = read(stored)
            died = True
            with suppress(ServiceError):
                compact(stored, dies_after=step, pack_commits=2)
                died = False
            assert read(stored) == before, f"died after {step} steps"
            deliver(stored, pieces[2], pieces[3])
            wanted = before + read(stored, after=2)
            assert len(wanted) == sum(len(piece.changes) for piece in pieces)
            compact(stored, at=25 * HOUR, pack_commits=2)
            compact(stored, at=50 * HOUR, pack_commits=2)
            assert read(stored) == wanted, f"died after {step} steps"
            assert manifests(stored)[0] == 0
            self.require_tidy(stored)
            if not died:
                assert step > 10
                return

    def require_tidy(self, stored: Stored) -> None:
        """That there is no file of data but those that are committed."""
        committed = {file.path for file in CommittedFiles(stored.store).files()}
        assert set(stored.data()) == committed, f"{set(stored.data()) ^ committed}"

    def test_what_was_replaced_goes_after_some_hours(self, stores: Callable[[], Stored]) -> None:
        """Those who began to read before it read on."""
        stored, topic = stores(), Topic()
        for piece in small_batches(4, topic):
            deliver(stored, piece)
        wanted = read(stored)
        reading = CommittedFiles(stored.store).records()
        early = [next(reading)]
        old = [file.path for file in CommittedFiles(stored.store).files()]
        done = compact(stored, at=0, pack_commits=FEW_COMMITS)
        assert done.removed == 0
        assert early + list(reading) == wanted
        for path in old:
            with stored.store.input(path) as file:
                assert file.read(1)
        assert compact(stored, at=23 * HOUR, pack_commits=FEW_COMMITS).removed == 0
        assert compact(stored, at=24 * HOUR, pack_commits=FEW_COMMITS).removed == done.joined
        self.require_tidy(stored)
        assert read(stored) == wanted

    def test_a_compaction_beside_another_doubles_nothing(
        self, stores: Callable[[], Stored], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The other runs, and a stream writes, when this one has made its files and not said so."""
        stored, topic = stores(), Topic()
        pieces = list(small_batches(4, topic))
        for piece in pieces[:3]:
            deliver(stored, piece)
        real, others = Commits.write_pack, iter([True])

        def beside(commits: Commits, *given: Any) -> None:
            if next(others, False):
                deliver(stored, pieces[3])
                compact(stored, pack_commits=FEW_COMMITS)
            real(commits, *given)

        monkeypatch.setattr(Commits, "write_pack", beside)
        compact(stored, pack_commits=FEW_COMMITS)
        assert len(read(stored)) == sum(len(piece.changes) for piece in pieces)
        compact(stored, at=48 * HOUR, pack_commits=FEW_COMMITS)
        assert len(read(stored)) == sum(len(piece.changes) for piece in pieces)
        self.require_tidy(stored)

    def test_one_that_takes_longer_than_files_stay_loses_nothing(
        self, stores: Callable[[], Stored], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another one, which begins when this one has made its files, takes none of them for what a crash has left."""
        stored, topic, now = stores(), Topic(), [0.0]
        for piece in small_batches(4, topic):
            deliver(stored, piece)
        before = read(stored)
        join, write, others = Compaction._join, Commits.write_pack, iter([True])
        ids = iter([UUID(int=0), UUID(int=2**128 - 1)])  # readers go by this one's pack

        def slowly(compaction: Compaction, *given: Any) -> None:
            join(compaction, *given)
            now[0] = 25 * HOUR

        def beside(commits: Commits, *given: Any) -> None:
            if next(others, False):
                compact(stored, at=now[0], pack_commits=FEW_COMMITS)
            write(commits, *given)

        monkeypatch.setattr(Compaction, "_join", slowly)
        monkeypatch.setattr(Commits, "write_pack", beside)
        monkeypatch.setattr(file_compaction, "uuid4", lambda: next(ids, None) or uuid4())
        Compaction(stored.store, 1 << 20, lambda: now[0], pack_commits=FEW_COMMITS).run(24)
        assert read(stored) == before
        compact(stored, at=51 * HOUR, pack_commits=FEW_COMMITS)
        assert read(stored) == before
        self.require_tidy(stored)

    def test_files_of_a_batch_that_has_several_stay_in_order(self, stores: Callable[[], Stored]) -> None:
        """More days than files may be open: some are ended and begun again."""
        stored, topic, log = stores(), Topic(), Log(PLAIN)
        stored.limits = FileLimits(open_files=2)
        for number in range(3):
            days = [DAY * (n % 3) + number for n in range(12)]
            deliver(stored, topic.piece(*(log.insert((0,), (), at, v="x") for at in days)))
        before = read(stored)
        compact(stored, pack_commits=FEW_COMMITS)
        assert read(stored) == before
        assert len(list(CommittedFiles(stored.store).files())) == 3
