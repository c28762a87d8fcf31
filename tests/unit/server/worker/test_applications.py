"""Subscriptions in a Spark application of their own: their worker starts a real process, watches it and ends it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace_schemas.errors import ServiceError
from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.leases import Claim, Leases
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.model import transitions
from tailrace_server.model.errors import LostLeaseError
from tailrace_server.model.progress import PartitionProgress
from tailrace_server.model.subscription import Shape, State
from tailrace_server.sealing import Sealer
from tailrace_server.worker.application import follow
from tailrace_server.worker.application_run import ApplicationRun
from tailrace_server.worker.failures import Failure
from tailrace_server.worker.messages import Order, Status
from tailrace_server.worker.worker import Pace, Worker
from tests.support.waiting import until
from tests.unit.server.requests import CLUSTER, SECRET, request

LEASE = 60.0
SECONDS = 60.0
OWN = Shape(spark={"spark.executor.memory": "1g"})
DOWN = Failure("the sink is down", "start it")
# The other end of the pipe: it reads its order, and writes and ends as the test chose.
PROGRAM = """
import json, os, signal, sys
how, seen = sys.argv[1], sys.argv[2]
order = json.loads(sys.stdin.buffer.readline())
with open(seen, "w") as file:
    json.dump({"order": order, "words": sys.argv, "environment": dict(os.environ)}, file)
def say(**status):
    status = {"works": False, "failure": None, "note": None, "finished": None, **status}
    os.write(1, json.dumps(status).encode() + b"\\n")
if how == "works":
    say(works=True)
    sys.stdin.buffer.read()
elif how == "killed":
    os.write(1, b'{"works": tr')
    os.kill(os.getpid(), signal.SIGKILL)
elif how == "fails":
    say(failure={"reason": "the sink is down", "action": "start it"})
elif how == "waits":
    say(works=True, note={"reason": "shop.a has no cdc", "action": "ALTER TABLE"})
    sys.stdin.buffer.read()
elif how == "done":
    say(works=True, finished="shop.c: has counters")
sys.exit(3 if how == "exits" else 0)
"""


class Site:
    """A meta database with one subscription of its own application, and a worker whose clock is the test's."""

    def __init__(self, database: MetaDatabase, directory: Path) -> None:
        self.database = database
        self.subscriptions = Subscriptions(database, Sealer(directory / "server.key"))
        self.seen = directory / "seen.json"
        self.program = directory / "application.py"
        self.program.write_text(PROGRAM)
        self.leases = Leases(database, CLUSTER, "w", LEASE)
        self.runs: list[ApplicationRun] = []
        self.how = "works"
        self.now = 0.0
        pace = Pace(lease=LEASE, longest_pause=300, most=100, applications=1)
        self.worker = Worker(self.leases, self.start, pace, clock=lambda: self.now, random=lambda: 0.0)

    def start(self, claim: Claim) -> ApplicationRun:
        command = [sys.executable, str(self.program), self.how, str(self.seen)]
        self.runs.append(ApplicationRun(claim, order_of, self.leases.with_new_token, command))
        return self.runs[-1]

    def subscribe(self, name: str = "a") -> int:
        return self.subscriptions.subscribe(request(name, shape=OWN), "test")[0].id


def order_of(claim: Claim) -> Order:
    identity = claim.subscription.id
    return Order(
        subscription=identity, owner="w", token=claim.token, config="x.toml", log_level="info", log_format="human"
    )


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with MetaDatabase(f"sqlite:///{tmp_path / 'meta.db'}") as database:
        database.prepare()
        site = Site(database, tmp_path)
        yield site
        site.worker.close()


def until_it(run: ApplicationRun, *, works: bool) -> None:
    """Wait until a run works, or has ended."""
    until(lambda: run.works if works else run.ended, "work" if works else "the end", SECONDS, state=lambda: run.failure)


@pytest.mark.promise("subscription.own-application", "subscription.secrets")
def test_it_is_told_its_claim_and_no_secret(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "4711")
    identity = site.subscribe()
    site.worker.beat()
    [run] = site.runs
    until_it(run, works=True)
    record = site.seen.read_text()
    assert f'"subscription": {identity}, "owner": "w", "token": {run.claim.token}' in record
    assert "shop.orders/a" in record
    assert SECRET not in record
    assert "PYSPARK_GATEWAY_PORT" not in record


@pytest.mark.slow
@pytest.mark.promise("subscription.own-application")
@pytest.mark.parametrize("operation", [transitions.paused, transitions.cancelled])
def test_it_ends_with_its_subscription_and_is_released(site: Site, operation: transitions.Transition) -> None:
    identity = site.subscribe()
    site.worker.beat()
    [run] = site.runs
    until_it(run, works=True)
    site.subscriptions.change(identity, "end", "test", operation)
    site.worker.beat()
    until_it(run, works=False)
    site.worker.beat()
    assert (run.failure, site.worker.running, site.subscriptions.get(identity).owner) == (None, 0, None)


def test_a_worker_that_leaves_waits_for_its_end(site: Site) -> None:
    identity = site.subscribe()
    site.worker.beat()
    site.worker.close()
    assert site.runs[0].ended
    assert site.runs[0].failure is None
    assert site.subscriptions.get(identity).owner is None


@pytest.mark.slow
@pytest.mark.promise("subscription.own-application", "subscription.isolated")
def test_one_that_dies_is_started_again_with_growing_pauses_under_a_new_token(site: Site) -> None:
    identity = site.subscribe()
    site.how = "killed"
    site.worker.beat()
    tokens = []
    for starts, pause in enumerate((1, 2, 4), 1):
        assert len(site.runs) == starts
        until_it(site.runs[-1], works=False)
        tokens.append(site.runs[-1].claim.token)
        site.worker.beat()
        stored = site.subscriptions.get(identity)
        assert (stored.state, stored.attempts) == (State.FAILING, starts)
        assert stored.reason == "its Spark application ended by SIGKILL, on w"
        site.now += pause - 0.01
        site.worker.beat()
        assert len(site.runs) == starts
        site.now += 0.01
        site.worker.beat()
    assert tokens == [2, 3, 4]
    assert site.subscriptions.get(identity).owner == "w"


@pytest.mark.promise("subscription.own-application", "subscription.one-owner")
def test_an_earlier_process_keeps_no_progress(site: Site) -> None:
    site.subscribe()
    [claim] = site.leases.claim(1)
    later = site.leases.with_new_token(claim)
    position = {("t", 0): PartitionProgress(5, 5)}
    with pytest.raises(LostLeaseError):
        site.leases.save(claim, position)
    site.leases.save(later, position)
    with pytest.raises(LostLeaseError):
        site.leases.with_new_token(claim)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "state", "reason"),
    [
        ("exits", State.FAILING, "its Spark application ended by exit code 3, on w"),
        ("fails", State.FAILING, DOWN.reason),
        ("done", State.DONE, "shop.c: has counters"),
    ],
)
def test_what_it_says_at_its_end_is_kept(site: Site, how: str, state: State, reason: str) -> None:
    identity = site.subscribe()
    site.how = how
    site.worker.beat()
    until_it(site.runs[0], works=False)
    site.worker.beat()
    stored = site.subscriptions.get(identity)
    assert (stored.state, stored.reason) == (state, reason)


@pytest.mark.slow
def test_what_it_waits_for_is_told(site: Site) -> None:
    identity = site.subscribe()
    site.how = "waits"
    site.worker.beat()
    until_it(site.runs[0], works=True)
    site.worker.beat()
    stored = site.subscriptions.get(identity)
    assert (stored.state, stored.reason) == (State.ACTIVE, "shop.a has no cdc")


def test_one_that_cannot_be_started_fails(site: Site) -> None:
    site.subscribe()
    [claim] = site.leases.claim(1)
    run = ApplicationRun(claim, order_of, site.leases.with_new_token, ["/nowhere/python"])
    assert run.ended
    assert run.failure is not None
    assert "cannot be started" in run.failure.reason
    run.stop()


def test_a_worker_starts_no_more_than_it_may(site: Site) -> None:
    site.subscribe("a")
    site.subscribe("b")
    site.worker.beat()
    site.worker.beat()
    assert (len(site.runs), site.worker.running) == (1, 1)
    [elsewhere] = Leases(site.database, CLUSTER, "other", LEASE).claim(9, applications=1)
    assert elsewhere.subscription.id != site.runs[0].claim.subscription.id


class Run:
    """A run that ends after so many waits, or when it is stopped."""

    works = True
    note = None
    finished = None

    def __init__(self, claim: Claim, beats: int, *, lost: bool = False) -> None:
        self.claim = claim
        self.left = beats
        self.lost = lost
        self.failure: Failure | None = None
        self.stopped = False

    @property
    def ended(self) -> bool:
        self.left -= 1
        return self.stopped or self.left < 0

    def stop(self) -> None:
        self.stopped = True

    def wait(self, seconds: float) -> None:
        assert seconds > 0

    def refresh(self) -> None:
        if self.lost:
            raise LostLeaseError("another worker may run it")


class Ticks(threading.Event):
    """Time that passes at once; after `beats` waits it is set."""

    def __init__(self, beats: int) -> None:
        super().__init__()
        self.beats = beats

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout
        self.beats -= 1
        if self.beats == 0:
            self.set()
        return self.is_set()


@pytest.fixture
def claim(site: Site) -> Claim:
    site.subscribe()
    return site.leases.claim(1)[0]


def test_each_news_is_told_once(claim: Claim) -> None:
    statuses: list[Status] = []
    run = Run(claim, 3)
    follow(run, Ticks(99), statuses.append, lambda: False)
    assert statuses == [Status(works=True), Status(works=True)]  # the last one at its end


@pytest.mark.promise("subscription.own-application")
def test_it_ends_where_it_is_told_to_or_has_lost_its_lease(claim: Claim) -> None:
    for run, stop in ((Run(claim, 99), Ticks(2)), (Run(claim, 99, lost=True), Ticks(999))):
        follow(run, stop, lambda _: None, lambda: False)
        assert run.stopped


def test_the_end_of_java_is_an_error(claim: Claim) -> None:
    with pytest.raises(ServiceError, match="Java"):
        follow(Run(claim, 9), Ticks(9), lambda _: None, lambda: True)
