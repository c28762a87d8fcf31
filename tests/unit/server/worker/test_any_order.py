"""Workers on one meta database, in any order of beats, faults, operators and time: one run of a subscription each."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tailrace_common.sections.server import ServerSettings
from tailrace_schemas.errors import ServiceError, TailraceError
from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.leases import Claim, Leases
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.model import transitions
from tailrace_server.model.subscription import RUNNABLE, Shape, Start, Subscription
from tailrace_server.worker.failures import Failure
from tailrace_server.worker.worker import Worker
from tests.properties import examples
from tests.support.clock import ManualClock
from tests.support.meta_database import by
from tests.unit.server.requests import CLUSTER, request
from tests.unit.server.worker.runs import DOWN, Run

LEASE: Final = 60.0
NAMES: Final = ("one", "two", "three")
MOST: Final = 4
"""Subscriptions of the site, and of a worker: so each may run all of them."""
CALLS: Final = ("renew", "share", "free", "claim", "release", "report", "leave", "keep")


class FinishedRun(Run):
    """One whose last batch ends while its worker waits."""

    def wait(self, seconds: float) -> None:
        """Until it has ended."""
        super().wait(seconds)
        self.ended = self.ended or self.stopped


@dataclass(eq=False)
class Station:
    """A worker, the runs that it began, and the step at which it last knew what is its own."""

    worker: Worker
    leases: Faulty
    runs: list[Run] = field(default_factory=list)
    beaten: int = -1


class Faulty(Leases):
    """Leases of which the nth call fails: before it asks the meta database, or since the answer is lost."""

    left = -1
    asks = True

    def __getattribute__(self, name: str) -> Any:
        member = super().__getattribute__(name)
        return partial(self._call, member) if name in CALLS else member

    def _call(self, call: Callable[..., object], *arguments: Any) -> object:
        self.left -= 1
        if self.left != -1:
            return call(*arguments)
        if self.asks:
            call(*arguments)
        raise ServiceError("the meta database does not answer")


class Site(RuleBasedStateMachine):
    """Three workers and up to four subscriptions."""

    prepared: Path

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        self._clock, self._step = ManualClock(), 0
        folder = Path(self._stack.enter_context(TemporaryDirectory()))
        shutil.copy(self.prepared, folder / "meta.db")
        self._stack.enter_context(by(self._clock))
        self._database = self._stack.enter_context(MetaDatabase(f"sqlite:///{folder / 'meta.db'}"))
        self._subscriptions = Subscriptions(self._database)
        self._stations: dict[str, Station] = {}
        self._reset_at: dict[int, int] = {}
        self._made = 0

    @initialize()
    def begin(self) -> None:
        """All are there, and have shared what there is."""
        for _ in range(3):
            self.subscribe()
        for name in NAMES:
            self._start(name)
        for name in NAMES * 2:
            self.beat(name, None, asks=False)

    def _start(self, name: str) -> None:
        """A process; of one that was killed nobody knows the name any more."""
        self._made += 1
        leases = Faulty(self._database, CLUSTER, f"{name}-{self._made}", LEASE)
        runs: list[Run] = []

        def run(claim: Claim) -> Run:
            runs.append(FinishedRun(claim))
            runs[-1].quick = len(runs) % 2 == 1
            return runs[-1]

        settings = ServerSettings(lease_seconds=LEASE, longest_pause_seconds=300, most_subscriptions=MOST)
        worker = Worker(leases, run, settings, clock=self._clock, random=lambda: 0.0)
        self._stations[name] = Station(worker, leases, runs)

    @rule(name=st.sampled_from(NAMES), fails=st.none() | st.integers(0, 4), asks=st.booleans(), killed=st.booleans())
    def end(self, name: str, fails: int | None, asks: bool, killed: bool) -> None:
        """By SIGKILL or SIGTERM; another one is started in its stead."""
        station = self._stations[name]
        if not killed:
            station.leases.left, station.leases.asks = -1 if fails is None else fails, asks
            station.worker.close()
            assert all(run.ended for run in station.runs)
        self._start(name)

    @rule(name=st.sampled_from(NAMES), fails=st.none() | st.integers(0, 6), asks=st.booleans())
    def beat(self, name: str, fails: int | None, asks: bool) -> None:
        station = self._stations[name]
        station.leases.left, station.leases.asks = -1 if fails is None else fails, asks
        station.worker.beat()
        if fails is None or station.leases.left >= 0:
            station.beaten = self._step
        station.leases.left = -1

    @rule(name=st.sampled_from(NAMES))
    def beat_well(self, name: str) -> None:
        self.beat(name, None, asks=False)

    @rule(name=st.sampled_from(NAMES))
    def beat_well_too(self, name: str) -> None:
        self.beat(name, None, asks=False)

    @rule(seconds=st.sampled_from((1, 20, 40, 61, 301)))
    def wait(self, seconds: int) -> None:
        """Each worker's watch sees the end of its leases."""
        self._clock.now += seconds
        for station in self._stations.values():
            station.worker.expire()

    @rule(number=st.integers(0, 30), event=st.sampled_from(("fails", "waits", "works", "idle", "slow", "ends", "done")))
    def run(self, number: int, event: str) -> None:
        runs = [run for station in self._stations.values() for run in station.runs if not run.ended]
        if not runs:
            return
        run = runs[number % len(runs)]
        match event:
            case "fails":
                run.fail()
            case "waits":
                run.failure, run.works = DOWN, False
            case "works":
                run.failure, run.note, run.works = None, None, True
            case "idle":
                run.note, run.works = Failure("no table", "make it", idle=True), False
            case "slow":
                run.quick = False
            case "ends":
                run.ended = run.stopped
            case "done":
                run.finished, run.ended = "", not run.stopped

    @rule()
    def subscribe(self) -> None:
        self._made += 1
        if len(self._subscriptions.all(CLUSTER)) < MOST:
            self._subscriptions.subscribe(request(f"s{self._made}"), "test")

    @rule(number=st.integers(0, MOST), named=st.sampled_from(("pause", "resume", "alter", "reset", "cancel")))
    def operate(self, number: int, named: str) -> None:
        subscriptions = self._subscriptions.all(CLUSTER)
        if not subscriptions:
            return
        subscription = subscriptions[number % len(subscriptions)]
        with suppress(TailraceError):
            self._subscriptions.change(subscription.id, named, "test", self._transition(subscription, named))
            if named == "reset":
                self._reset_at[subscription.id] = self._step

    def _transition(self, subscription: Subscription, named: str) -> transitions.Transition:
        simple: dict[str, transitions.Transition] = {
            "pause": transitions.paused, "resume": transitions.resumed, "cancel": transitions.cancelled,
        }  # fmt: skip
        if named == "alter":
            shape = Shape(where=f"id > {self._step}")
            return lambda one: transitions.altered(one, one.sink, shape, subscription.revision)
        return simple.get(named, lambda one: transitions.restarted(one, Start(), f"reading {self._step}"))

    @invariant()
    def one_run_at_a_time(self) -> None:
        """In a worker whatever happens; among workers with a lease as soon as each knows of a reset."""
        self._step += 1
        knowing: list[int] = []
        for station in self._stations.values():
            running = [run for run in station.runs if not run.ended]
            ids = [run.claim.subscription.id for run in running]
            assert len(ids) == len({*ids}), "two runs of a subscription in a worker"
            assert station.worker.running >= len(ids), "a run that its worker does not know of"
            if station.worker.expire() > 0:
                knowing += [
                    run.claim.subscription.id
                    for run in running
                    if not run.stopped and station.beaten > self._reset_at.get(run.claim.subscription.id, -1)
                ]
        assert len(knowing) == len({*knowing}), "two workers run a subscription"

    def teardown(self) -> None:
        """The answers to claims are lost; once all is well what is to run is run, once, and nothing else is."""
        with self._stack:
            self.wait(61)
            for name in NAMES:
                self.beat(name, 2, asks=True)
            for _ in range(40):
                self._clock.now += 20
                for station in self._stations.values():
                    for run in station.runs:
                        run.note, run.works, run.quick = None, True, True
                        run.failure = run.failure if run.ended else None
                        run.ended = run.ended or run.stopped
                    station.worker.expire()
                    station.worker.beat()
            claims = [
                (run.claim.subscription.id, run.claim.token)
                for station in self._stations.values()
                for run in station.runs
                if not run.ended
            ]
            subscriptions = self._subscriptions.all(CLUSTER)
            assert sorted(claims) == sorted((one.id, one.token) for one in subscriptions if one.state in RUNNABLE)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the tables."""
    path = tmp_path_factory.mktemp("meta") / "meta.db"
    with MetaDatabase(f"sqlite:///{path}") as database:
        database.prepare()
    return path


@pytest.mark.slow
@pytest.mark.promise("subscription.one-owner", "subscription.take-over")
def test_each_subscription_is_run_by_one_and_by_one_again_when_all_is_well(prepared: Path) -> None:
    Site.prepared = prepared
    check = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        Site, settings=settings(max_examples=examples(25), stateful_step_count=40, suppress_health_check=check)
    )
