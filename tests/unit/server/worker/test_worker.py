"""A worker on a real meta database, whose runs are values: what it claims, ends, reports and gives up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Thread

import pytest
import sqlalchemy as sa

from tailrace_common.sections.server import ServerSettings
from tailrace_schemas.errors import ServiceError
from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.leases import Claim, Leases
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.meta.tables import subscribe
from tailrace_server.model import transitions
from tailrace_server.model.subscription import INITIAL, SNAPSHOT, Shape, Start, State
from tailrace_server.worker.failures import Failure
from tailrace_server.worker.worker import Worker, watched
from tests.support.clock import ManualClock
from tests.support.meta_database import by
from tests.support.waiting import until
from tests.unit.server.meta.hanging import behind_a_proxy
from tests.unit.server.requests import CLUSTER, request
from tests.unit.server.worker.runs import DOWN, Run

LEASE = 60.0


class Site:
    """One meta database, and workers with a clock of the test's, which a SQLite file has too."""

    def __init__(self, database: MetaDatabase, clock: ManualClock) -> None:
        self.database = database
        self.subscriptions = Subscriptions(database)
        self.clock = clock
        self.runs: dict[str, list[Run]] = {}

    @property
    def now(self) -> float:
        return self.clock.now

    @now.setter
    def now(self, seconds: float) -> None:
        self.clock.now = seconds

    def worker(
        self, owner: str, most: int = 100, leases: Leases | None = None, run: Callable[[Claim], Run] = Run
    ) -> Worker:
        """One whose runs `runs` has; `leases` are its own, or others of the same owner."""
        runs = self.runs[owner] = []

        def start(claim: Claim) -> Run:
            runs.append(run(claim))
            return runs[-1]

        leases = leases or Leases(self.database, CLUSTER, owner, LEASE)
        settings = ServerSettings(lease_seconds=LEASE, longest_pause_seconds=300, most_subscriptions=most)
        return Worker(leases, start, settings, clock=lambda: self.now, random=lambda: 0.0)

    def subscribe(self, *names: str) -> list[int]:
        return [self.subscriptions.subscribe(request(name), "test")[0].id for name in names]

    def running(self) -> tuple[int, Worker, Run]:
        """A subscription, the worker that runs it, and the run."""
        [identity], worker = self.subscribe("a"), self.worker("w")
        worker.beat()
        [run] = self.runs["w"]
        return identity, worker, run

    def state(self, identity: int) -> tuple[str, str | None]:
        subscription = self.subscriptions.get(identity)
        return str(subscription.state), subscription.owner


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    clock = ManualClock()
    with by(clock), MetaDatabase(f"sqlite:///{tmp_path / 'meta.db'}") as database:
        database.prepare()
        yield Site(database, clock)


def test_it_shares_with_one_that_comes_and_with_nobody_when_that_leaves(site: Site) -> None:
    ids, first = site.subscribe(*"abcd"), site.worker("first")
    first.beat()
    assert first.running == 4
    second = site.worker("second")
    second.beat()  # it is known of from now on
    first.beat()  # stops two, and has released them
    second.beat()
    assert (first.running, second.running) == (2, 2)
    second.close()
    assert [run.stopped for run in site.runs["second"]] == [True, True]
    first.beat()
    assert first.running == 4
    assert {site.state(identity) for identity in ids} == {("active", "first")}


def test_it_takes_no_more_than_it_may(site: Site) -> None:
    site.subscribe(*"abcd")
    worker = site.worker("w", most=3)
    worker.beat()
    worker.beat()
    assert worker.running == 3


def test_what_a_small_worker_has_no_slots_for_a_large_one_runs(site: Site) -> None:
    """Else it stands still for ever, although there are free slots."""
    site.subscribe(*"abcdefgh")
    small, large = site.worker("small", most=2), site.worker("large", most=50)
    for _ in range(3):
        small.beat()
        large.beat()
    assert (small.running, large.running) == (2, 6)


@pytest.mark.parametrize("operation", [transitions.paused, transitions.cancelled])
def test_what_an_operator_ends_is_finished_and_released(site: Site, operation: transitions.Transition) -> None:
    identity, worker, _ = site.running()
    site.subscriptions.change(identity, "end", "test", operation)
    worker.beat()
    worker.beat()
    [run] = site.runs["w"]
    assert run.stopped
    assert (worker.running, site.state(identity)[1]) == (0, None)


@pytest.mark.slow
@pytest.mark.promise("subscription.isolated")
@pytest.mark.parametrize("ended", [0, 1, 2])
def test_what_an_operator_ends_ends_no_other(site: Site, ended: int) -> None:
    """The share is smaller by one then, which the one that ends makes up for."""
    ids, worker = site.subscribe(*"abc"), site.worker("w")
    worker.beat()
    site.subscriptions.change(ids[ended], "pause", "test", transitions.paused)
    worker.beat()
    worker.beat()
    assert [run.stopped for run in site.runs["w"]] == [number == ended for number in range(3)]
    assert worker.running == 2


@pytest.mark.promise("subscription.isolated")
def test_what_it_waits_for_is_said_once_and_taken_back(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    identity, worker, run = site.running()
    run.note, run.works = Failure("shop.orders has no cdc", "ALTER TABLE shop.orders WITH cdc = true"), False
    for _ in range(3):
        worker.beat()
    stored = site.subscriptions.get(identity)
    assert (stored.state, stored.reason, stored.action) == (State.ACTIVE, run.note.reason, run.note.action)
    words = "shop.orders/a waits: shop.orders has no cdc. ALTER TABLE shop.orders WITH cdc = true"
    assert caplog.messages.count(words) == 1
    run.note, run.works = None, True
    worker.beat()
    stored = site.subscriptions.get(identity)
    assert (stored.state, stored.reason, stored.action) == (State.ACTIVE, "", "")


def test_a_failure_comes_before_what_is_waited_for_and_that_after_it(site: Site) -> None:
    identity, worker, run = site.running()
    run.note = Failure("shop.orders has no cdc", "ALTER TABLE shop.orders WITH cdc = true")
    worker.beat()
    run.failure = DOWN
    worker.beat()
    assert (site.subscriptions.get(identity).state, site.subscriptions.get(identity).reason) == (
        State.FAILING,
        DOWN.reason,
    )
    run.failure = None
    worker.beat()
    stored = site.subscriptions.get(identity)
    assert (stored.state, stored.reason) == (State.ACTIVE, "shop.orders has no cdc")


def test_what_is_altered_runs_again_with_its_new_settings(site: Site) -> None:
    identity, worker, _ = site.running()
    sink = site.subscriptions.get(identity).sink
    shape = Shape(where="id > 1")
    site.subscriptions.change(identity, "alter", "test", lambda one: transitions.altered(one, sink, shape, 0))
    worker.beat()
    worker.beat()
    before, after = site.runs["w"]
    assert before.stopped
    assert not after.ended
    assert after.claim.subscription.shape == shape
    assert after.claim.token == before.claim.token + 1


@pytest.mark.promise("subscription.take-over")
def test_a_claim_whose_answer_was_lost_is_run_at_the_next_beat(site: Site) -> None:
    """Else it is this worker's, renewed each second, and never run."""
    [identity], worker = site.subscribe("a"), site.worker("w")
    [lost] = Leases(site.database, CLUSTER, "w", LEASE).claim(1)
    worker.beat()
    tokens = [run.claim.token for run in site.runs["w"]]
    assert (tokens, site.state(identity)) == ([lost.token + 1], ("active", "w"))


@pytest.mark.promise("subscription.take-over")
@pytest.mark.parametrize("quick", [True, False])
def test_what_fails_here_is_not_said_of_one_that_another_runs(
    site: Site, caplog: pytest.LogCaptureFixture, quick: bool
) -> None:
    """A sink refuses who was stopped for longer than the lease, and the heir has no trouble."""
    identity, worker, run = site.running()
    run.quick = quick
    site.now += LEASE + 1
    heir = site.worker("heir")
    heir.beat()

    run.failure = DOWN
    worker.beat()
    run.ended = True
    worker.beat()
    assert site.state(identity) == ("active", "heir")
    assert "fails" not in caplog.text


@pytest.mark.promise("subscription.take-over")
def test_a_release_that_was_lost_is_made_up_for_at_the_next_beat(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of one that was altered."""
    identity, worker, _ = site.running()
    altered = partial(transitions.altered, sink=request().sink, shape=Shape(where="id > 1"), revision=0)
    site.subscriptions.change(identity, "alter", "test", altered)

    def lose(_leases: Leases, _claim: Claim, _pause: float = 0.0) -> None:
        raise ServiceError("the meta database does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(Leases, "release", lose)
        worker.beat()
    assert (worker.running, site.state(identity)) == (0, ("active", "w"))
    worker.beat()
    assert (worker.running, site.state(identity)) == (1, ("active", "w"))


def reset(site: Site, identity: int) -> None:
    """Read it again from its beginning."""
    again = partial(transitions.restarted, start=Start(), reading="second")
    site.subscriptions.change(identity, "reset", "test", again)


@pytest.mark.promise("subscription.one-owner")
def test_who_closes_waits_for_the_batch_of_what_is_reset(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    identity, worker, run = site.running()
    run.quick = False
    reset(site, identity)
    worker.beat()
    monkeypatch.setattr(run, "wait", lambda _seconds: setattr(run, "ended", True))
    worker.close()
    assert run.ended


@pytest.mark.promise("subscription.one-owner")
def test_what_is_reset_is_not_run_again_before_its_batch_has_ended(site: Site) -> None:
    identity, worker, first = site.running()
    first.quick = False
    reset(site, identity)
    [other] = site.subscribe("b")  # so that the worker has room
    for _ in range(3):
        worker.beat()
    runs = [run.claim.subscription.id for run in site.runs["w"]]
    assert (first.stopped, runs, site.state(identity)) == (True, [identity, other], ("active", None))
    first.ended = True
    worker.beat()
    assert [run.claim.subscription.id for run in site.runs["w"]] == [identity, other, identity]


@pytest.mark.promise("subscription.isolated")
def test_one_that_fails_waits_longer_each_time_and_the_others_run_on(site: Site) -> None:
    [bad, good], worker = site.subscribe("bad", "good"), site.worker("w")
    worker.beat()
    for begun, pause in enumerate((1, 2, 4, 8), 1):
        latest = [run for run in site.runs["w"] if run.claim.subscription.id == bad]
        assert len(latest) == begun
        latest[-1].fail()
        worker.beat()
        failing = site.subscriptions.get(bad)
        assert (failing.state, failing.reason, failing.action) == (State.FAILING, DOWN.reason, DOWN.action)
        assert failing.attempts == begun
        site.now += pause - 0.01
        worker.beat()
        assert len([run for run in site.runs["w"] if run.claim.subscription.id == bad]) == begun
        site.now += 0.02
        worker.beat()
    assert site.state(good) == ("active", "w")
    assert [run.ended for run in site.runs["w"] if run.claim.subscription.id == good] == [False]
    worker.beat()
    assert site.state(bad) == ("active", "w")  # the last one works
    assert site.subscriptions.get(bad).attempts == 0


@pytest.mark.promise("subscription.isolated")
@pytest.mark.parametrize("ends", [True, False])
def test_those_that_fail_keep_no_slot_from_one_that_works(site: Site, ends: bool) -> None:
    """Whether their runs have ended, or wait for their sinks; they have their turns, one at a time."""
    dead, worker = site.subscribe(*"abc"), site.worker("w", most=3)
    worker.beat()
    [healthy] = site.subscribe("healthy")
    for run in site.runs["w"]:
        run.failure, run.works, run.ended = DOWN, False, ends
    for _ in range(4):
        worker.beat()
    assert site.state(healthy) == ("active", "w")
    tries = dict.fromkeys(dead, 0)
    while min(tries.values()) < 3:
        for run in site.runs["w"]:
            identity = run.claim.subscription.id
            if identity != healthy and not run.ended:
                run.failure, run.works, run.ended = DOWN, False, ends
                tries[identity] = max(tries[identity], run.claim.token)
        site.now += 1
        worker.beat()
    assert [run.stopped for run in site.runs["w"] if run.claim.subscription.id == healthy] == [False]
    assert {site.state(identity)[0] for identity in dead} == {"failing"}


@pytest.mark.promise("subscription.isolated")
def test_those_without_a_published_table_keep_no_slot_from_one_that_has_some(site: Site) -> None:
    """They have their turns too, and stay active."""
    waiting, worker = site.subscribe(*"abc"), site.worker("w", most=3)
    worker.beat()
    for run in site.runs["w"]:
        run.note = Failure("shop.orders has no cdc", "ALTER TABLE shop.orders WITH cdc = true", idle=True)
    [healthy] = site.subscribe("healthy")
    worker.beat()
    worker.beat()
    assert site.state(healthy) == ("active", "w")
    assert [run.stopped for run in site.runs["w"]].count(True) == 1
    for _ in range(12):
        site.now += 30
        worker.beat()
    assert {run.claim.subscription.id for run in site.runs["w"] if run.claim.token == 2} == {waiting[0]}
    assert [run.stopped for run in site.runs["w"] if run.claim.subscription.id == healthy] == [False]
    assert {site.state(identity)[0] for identity in waiting} == {"active"}


@pytest.mark.parametrize("waits", [{"failure": DOWN}, {"note": Failure("no table", "make it", idle=True)}])
def test_runs_that_only_wait_stay_while_nobody_wants_their_slots(site: Site, waits: dict[str, Failure]) -> None:
    site.subscribe(*"abc")
    worker = site.worker("w", most=3)
    worker.beat()
    for run in site.runs["w"]:
        run.failure, run.note, run.works = waits.get("failure"), waits.get("note"), False
    worker.beat()
    worker.beat()
    assert [run.stopped for run in site.runs["w"]] == [False] * 3


def test_one_that_is_not_proven_is_still_failing(site: Site) -> None:
    identity, worker, _ = site.running()
    site.runs["w"][0].fail()
    worker.beat()
    site.now += 10
    worker.beat()
    second = site.runs["w"][1]
    second.works = False
    worker.beat()
    assert site.state(identity)[0] == "failing"
    second.works = True
    worker.beat()
    assert site.state(identity)[0] == "active"


def test_a_batch_that_waits_is_told_and_so_is_its_end(site: Site) -> None:
    identity, worker, run = site.running()
    run.failure, run.works = DOWN, False
    for _ in range(3):
        worker.beat()
    assert site.state(identity)[0] == "failing"
    assert site.subscriptions.get(identity).attempts == 1
    run.failure, run.works = None, True
    worker.beat()
    assert site.state(identity)[0] == "active"
    assert not run.ended


def test_a_failure_that_could_not_be_kept_is_kept_at_the_next_beat(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it stays active without a reason, while its sink is down."""
    [identity], worker = site.subscribe("a"), site.worker("w")
    worker.beat()
    site.runs["w"][0].failure, site.runs["w"][0].works = DOWN, False

    def lose(_leases: Leases, _claim: Claim, _changed: transitions.Transition) -> None:
        raise ServiceError("the meta database does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(Leases, "report", lose)
        worker.beat()
    assert site.state(identity)[0] == "active"
    worker.beat()
    stored = site.subscriptions.get(identity)
    assert (stored.state, stored.reason, stored.attempts) == (State.FAILING, DOWN.reason, 1)


@pytest.mark.parametrize("waits", [{"failure": DOWN}, {"note": Failure("no table", "make it")}])
def test_what_is_paused_and_resumed_between_two_beats_says_again_what_it_waits_for(
    site: Site, waits: dict[str, Failure]
) -> None:
    """Both take its reason away, and the worker has said it once."""
    [identity], worker = site.subscribe("a"), site.worker("w")

    def wait() -> None:
        for run in site.runs["w"]:
            run.failure, run.note, run.works = waits.get("failure"), waits.get("note"), False
        worker.beat()

    worker.beat()
    wait()
    before = site.subscriptions.get(identity)
    site.subscriptions.change(identity, "pause", "test", transitions.paused)
    site.subscriptions.change(identity, "resume", "test", transitions.resumed)
    for _ in range(3):
        wait()
    stored = site.subscriptions.get(identity)
    assert (stored.state, stored.reason) == (before.state, before.reason)


def test_one_that_waits_says_so_still_once_somebody_resumes_it(site: Site) -> None:
    """It was not paused, so its run goes on, and has said it once."""
    identity, worker, run = site.running()
    run.note = Failure("no table", "make it")
    worker.beat()
    site.subscriptions.change(identity, "resume", "test", transitions.resumed)
    worker.beat()
    assert site.subscriptions.get(identity).reason == "no table"


class Meanwhile(Leases):
    """Leases of a worker whose beat an operator comes between."""

    operate: Callable[[], object] = staticmethod(lambda: None)

    def portion(self, limit: int) -> int:
        self.operate()
        return super().portion(limit)


def interrupted(site: Site) -> tuple[Worker, Meanwhile, list[Run]]:
    """A worker, its leases and its runs."""
    leases = Meanwhile(site.database, CLUSTER, "w", LEASE)
    return site.worker("w", 9, leases), leases, site.runs["w"]


def test_an_alteration_during_a_beat_is_not_ended_by_the_run_before_it(site: Site) -> None:
    """A snapshot is done, and somebody asks for the log too: nobody would ever run it."""
    [identity], (worker, leases, runs) = site.subscribe("a"), interrupted(site)
    worker.beat()
    runs[0].finished, runs[0].ended = "", True
    altered = partial(transitions.altered, sink=request().sink, shape=Shape(stream={SNAPSHOT: INITIAL}), revision=0)
    leases.operate = lambda: site.subscriptions.change(identity, "alter", "test", altered)
    worker.beat()
    leases.operate = lambda: None
    worker.beat()
    assert (site.state(identity), len(runs)) == (("active", "w"), 2)


def test_one_that_is_resumed_during_a_beat_is_tried_at_once(site: Site) -> None:
    [identity], (worker, leases, runs) = site.subscribe("a"), interrupted(site)
    worker.beat()
    runs[0].failure, runs[0].works = DOWN, False
    worker.beat()
    runs[0].fail()
    leases.operate = lambda: site.subscriptions.change(identity, "resume", "test", transitions.resumed)
    worker.beat()
    leases.operate = lambda: None
    worker.beat()
    assert (site.state(identity), len(runs)) == (("active", "w"), 2)


def test_one_that_is_resumed_is_tried_at_once(site: Site) -> None:
    identity, worker, _ = site.running()
    site.runs["w"][0].fail()
    worker.beat()
    site.subscriptions.change(identity, "resume", "test", transitions.resumed)
    worker.beat()
    assert len(site.runs["w"]) == 2


@pytest.mark.promise("subscription.take-over")
def test_a_heir_knows_that_it_was_failing(site: Site) -> None:
    identity, worker, _ = site.running()
    site.runs["w"][0].fail()
    worker.beat()
    worker.close()
    assert site.state(identity) == ("failing", None)
    site.now += 1
    heir = site.worker("heir")
    heir.beat()
    heir.beat()
    assert site.state(identity) == ("active", "heir")


def test_a_heir_takes_back_what_is_waited_for_no_more(site: Site) -> None:
    identity, worker, _ = site.running()
    site.runs["w"][0].note = Failure("shop.orders has no cdc", "ALTER TABLE shop.orders WITH cdc = true")
    worker.beat()
    worker.close()
    assert site.subscriptions.get(identity).reason == "shop.orders has no cdc"
    heir = site.worker("heir")
    heir.beat()
    heir.beat()
    assert site.subscriptions.get(identity).reason == ""


def test_one_that_is_done_with_its_snapshot_is_run_no_more(site: Site) -> None:
    identity, worker, run = site.running()
    run.finished, run.ended = "shop.totals: it has counters", True
    worker.beat()
    worker.beat()
    assert (site.state(identity), len(site.runs["w"])) == (("done", None), 1)
    assert site.subscriptions.get(identity).reason == "shop.totals: it has counters"
    again = partial(transitions.restarted, start=None, reading="", snapshot=True)
    site.subscriptions.change(identity, "reset", "test", again)
    worker.beat()
    assert (site.state(identity), len(site.runs["w"])) == (("active", "w"), 2)


class Finishing(Run):
    """One whose last batch takes three waits, where it is slow; `look` is called meanwhile."""

    def __init__(self, claim: Claim, look: Callable[[], None]) -> None:
        super().__init__(claim)
        self._look = look
        self._left = 3 if claim.subscription.name == "slow" else 0

    def stop(self) -> None:
        self.stopped, self.ended = True, not self._left

    def wait(self, seconds: float) -> None:
        super().wait(seconds)
        if self._left:
            self._look()
            self._left -= 1
            self.ended = not self._left


@pytest.mark.promise("subscription.isolated")
def test_a_last_batch_that_takes_long_holds_up_no_other_subscription(site: Site) -> None:
    """A worker leaves: others have at once what it has finished, and the one that it has not only once that is over."""
    ids, heir, owners = site.subscribe("slow", "a", "b"), site.worker("heir"), list[list[str | None]]()

    def look() -> None:
        heir.beat()
        owners.append([site.state(identity)[1] for identity in ids])

    worker = site.worker("leaving", 9, run=lambda claim: Finishing(claim, look))
    worker.beat()
    worker.close()
    assert owners[-1] == ["leaving", "heir", "heir"]
    heir.beat()
    assert [site.state(identity)[1] for identity in ids] == ["heir", "heir", "heir"]


@pytest.mark.promise("subscription.one-owner")
def test_what_another_one_has_is_stopped(site: Site) -> None:
    identity, worker, _ = site.running()
    site.subscriptions.change(identity, "reset", "test", lambda one: transitions.restarted(one, one.start, "again"))
    [other] = Leases(site.database, CLUSTER, "other", LEASE).claim(1)
    worker.beat()
    [run] = site.runs["w"]
    assert run.stopped
    worker.beat()
    assert site.state(identity) == ("active", "other")
    assert site.subscriptions.get(identity).token == other.token


class Unreachable(Leases):
    """Leases whose database does not answer, once it is gone; before that its answers come late."""

    gone = False
    late: Callable[[], None] = staticmethod(lambda: None)

    def renew(self, running: int, room: int = 0) -> dict[int, object]:  # type: ignore[override]  # what it gives is the same
        if self.gone:
            raise ServiceError("the meta database does not answer")
        renewed = super().renew(running, room)
        self.late()
        return renewed  # type: ignore[return-value]  # as above


@pytest.mark.promise("subscription.one-owner")
@pytest.mark.parametrize("answered", [0.0, 10.0])
def test_without_the_database_everything_ends_with_the_lease(
    site: Site, caplog: pytest.LogCaptureFixture, answered: float
) -> None:
    """Which lasts from the question on: when the database has counted it from, nobody knows."""
    site.subscribe("a")
    leases = Unreachable(site.database, CLUSTER, "w", LEASE)
    worker = site.worker("w", 9, leases)
    runs = site.runs["w"]
    leases.late = lambda: setattr(site, "now", answered)
    worker.beat()
    leases.gone = True
    site.now = LEASE - 1
    worker.beat()
    assert [run.stopped for run in runs] == [False]
    site.now = LEASE
    worker.beat()
    assert [run.stopped for run in runs] == [True]
    assert f"has not answered for {LEASE:g} s, as long as a lease: 1 subscriptions stop" in caplog.text
    assert worker.running == 0


@pytest.mark.slow
@pytest.mark.promise("subscription.one-owner")
def test_where_the_database_hangs_everything_ends_with_the_lease() -> None:
    """While a beat waits for its answer, and whatever comes of it."""
    with behind_a_proxy("postgresql") as (url, proxy), MetaDatabase(url) as database:
        database.prepare()
        site = Site(database, ManualClock())
        site.subscribe("a")
        worker = site.worker("w")
        worker.beat()
        [run] = site.runs["w"]
        proxy.stall()
        beat = Thread(target=worker.beat)
        beat.start()
        site.now = LEASE - 1
        assert (worker.expire(), run.stopped) == (1, False)
        site.now = LEASE
        assert (worker.expire(), run.stopped, beat.is_alive()) == (0, True, True)
        worker.close()  # which waits for nothing, as a SIGTERM does not
        beat.join()


def test_a_watch_ends_what_runs_when_the_lease_ends(site: Site) -> None:
    site.subscribe("a")
    worker = site.worker("w")
    worker.beat()
    [run] = site.runs["w"]
    with watched(worker):
        site.now = LEASE
        until(lambda: run.stopped, "the end of the run")


@pytest.mark.promise("subscription.isolated")
def test_what_a_later_version_has_altered_ends_no_worker_of_this_one(site: Site) -> None:
    """Its last batch may wait for its sink meanwhile."""
    [later, other], worker = site.subscribe("later", "other"), site.worker("w")
    worker.beat()
    [run] = [run for run in site.runs["w"] if run.claim.subscription.id == later]
    run.quick = False
    with site.database.transaction() as connection:
        altered = sa.update(subscribe).where(subscribe.c.id == later)
        connection.execute(altered.values(shape='{"colour": "red"}', revision=1))
    worker.beat()
    run.failure, run.works = DOWN, False
    worker.beat()
    run.ended = True
    worker.beat()
    worker.beat()
    assert (worker.running, site.state(other)) == (1, ("active", "w"))
    assert site.subscriptions.all(CLUSTER)[0].owner is None


class Slow(Run):
    """One whose topics' ends take three seconds to be asked for and kept."""

    def __init__(self, claim: Claim, clock: ManualClock) -> None:
        super().__init__(claim)
        self._clock = clock
        self.refreshed = 0

    def refresh(self) -> None:
        self._clock.now += 3
        self.refreshed += 1


@pytest.mark.promise("subscription.one-owner")
def test_leases_do_not_end_while_ends_are_asked_for(site: Site) -> None:
    """As of a slow Kafka: it tells people of lag, and is not worth a lease. All have their turns."""
    runs: list[Slow] = []
    site.subscribe(*[f"s{number}" for number in range(30)])

    def slow(claim: Claim) -> Slow:
        runs.append(Slow(claim, site.clock))
        return runs[-1]

    worker = site.worker("w", 50, run=slow)
    worker.beat()
    site.now += 6
    for _ in range(8):
        worker.beat()
        assert worker.expire() > 0
    assert (min(run.refreshed for run in runs) > 0, any(run.stopped for run in runs)) == (True, False)
