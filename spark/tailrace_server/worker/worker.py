"""A worker: it keeps its leases, runs what it has claimed, and gives up what it no longer should have."""

from __future__ import annotations

import logging
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Final
from uuid import uuid4

from tailrace_common.backoff import Waits
from tailrace_common.closing import beside
from tailrace_common.kafka import PartitionEnds
from tailrace_common.properties.passthrough import Scalar
from tailrace_common.sections.server import ServerSettings
from tailrace_common.settings import Settings
from tailrace_common.unreachable import with_next_try
from tailrace_schemas.errors import ServiceError
from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.leases import Claim, Leases, Shuffle
from tailrace_server.model import transitions
from tailrace_server.model.subscription import RUNNABLE, LostLeaseError, State, Subscription
from tailrace_server.worker.failures import Failure
from tailrace_server.worker.keeping import SharedEnds
from tailrace_server.worker.readings import Readings
from tailrace_server.worker.run import Running, StartRun, StreamRun
from tailrace_spark.job.endings import java_end
from tailrace_spark.job.session import SparkOnce, quiet_pools

log = logging.getLogger("tailrace_server")

# Where topics end is kept so often at the most, for the lag that people see.
_REFRESH_SECONDS: Final = 5.0
_LAST_BATCH_SECONDS: Final = 1.0
_BEAT_SECONDS: Final = 1.0
_FAIR: Final = "spark.scheduler.mode"


class Worker:
    """One worker of a cluster. `beat` is called every second or so, by one thread."""

    def __init__(
        self,
        leases: Leases,
        start: StartRun,
        settings: ServerSettings,
        *,
        clock: Callable[[], float],
        random: Callable[[], float],
        shuffle: Shuffle = list,
    ) -> None:
        """`clock` is monotonic, in seconds, `random` from 0 to 1."""
        self._leases = leases
        self._start = start
        self._settings = settings
        self._clock = clock
        self._random = random
        self._shuffle = shuffle
        self._runs: dict[int, Running] = {}
        self._ending: dict[int, float] = {}  # and for how many seconds nobody is to claim them then
        self._reported: dict[int, Failure] = {}
        self._noted: dict[int, Failure] = {}
        self._leased_until = clock()
        self._refreshed = clock()
        self._due: list[int] = []  # whose topics' ends are to be kept

    @property
    def running(self) -> int:
        """How many subscriptions it has."""
        return len(self._runs)

    def beat(self) -> None:
        """Renew the leases; end, start and report what that and the state of the runs ask for."""
        began = self._clock()
        try:
            owned = self._leases.renew(self.running, self._settings.most_subscriptions - self.running)
            self._leased_until = began + self._settings.lease_seconds
            portion = self._leases.portion(self._settings.most_subscriptions)
            self._keep_to(owned)
            self._give_up(portion)
            self._look_after()
            self._take_up(portion)
            self._refresh()
        except ServiceError as error:
            log.warning("%s; what runs goes on until its lease ends", error)
            if self.expire() <= 0:
                self._abandon()

    def expire(self) -> float:
        """In how many seconds the leases end; at their end stop all, as others may run it. Any thread may call, also
        while `beat` waits for the meta database."""
        left = self._leased_until - self._clock()
        if left <= 0:
            for run in list(self._runs.values()):
                run.stop()
        return left

    def close(self) -> None:
        """Finish batches, and let others have each subscription as soon as its own is finished.

        Once the meta database has not answered it is asked no more: the leases end by themselves.
        """
        for run in self._runs.values():
            run.stop()
        answers = self._told(self._leases.leave)  # others share what there is among themselves
        while self._runs:
            next(iter(self._runs.values())).wait(_LAST_BATCH_SECONDS)
            for identity in [identity for identity, run in self._runs.items() if run.ended]:
                claim = self._runs[identity].claim
                self._forget(identity)
                answers = answers and self._told(partial(self._leases.release, claim))
            answers = answers and self._told(self._leases.keep)  # a last batch may take longer than a lease

    def _told(self, tell: Callable[[], None]) -> bool:
        """Whether the meta database could be told."""
        try:
            tell()
        except ServiceError as error:
            log.warning("%s; others have this worker's subscriptions when its leases have ended", error)
            return False
        return True

    def _keep_to(self, owned: Mapping[int, Subscription]) -> None:
        """End what is another's by now, and what an operator stopped or altered. Give up what is this worker's and not
        run: an answer was lost, of a claim or of a release. It is claimed again."""
        for identity, run in self._runs.items():
            subscription = owned.get(identity)
            if subscription is None or subscription.token != run.claim.token:
                log.warning("%s is not this worker's any more", run.claim.subscription.reference)
                self._end(identity)
            elif not _same(subscription, run.claim.subscription):
                self._end(identity)
        for identity in owned.keys() - self._runs.keys():
            self._leases.release(Claim(owned[identity], owned[identity].token))

    def _give_up(self, portion: int) -> None:
        """Leave what is beyond the portion to workers that have less.

        What ends already, as an operator's pause does, is beyond it no more: another would end in its stead.
        """
        staying = [identity for identity in self._runs if identity not in self._ending]
        surplus = len(staying) - portion
        for identity in staying[: max(0, surplus)]:
            self._end(identity)

    def _end(self, identity: int, pause: float = 0.0) -> None:
        self._ending[identity] = min(pause, self._ending.get(identity, pause))
        self._runs[identity].stop()

    def _look_after(self) -> None:
        """Report what fails and what works again; take leave of what has ended.

        What others wait for, and this worker has no slot for, gets those of runs that wait for their sinks or tables.
        """
        is_full = self.running >= self._settings.most_subscriptions  # those that end free their slots soon
        shortage = len(self._not_run(self._leases.free())) - len(self._ending) if is_full else 0
        for identity, run in list(self._runs.items()):
            try:
                if run.ended:
                    self._ended(identity, run)
                    continue
                self._report(identity, run)
                if (
                    shortage > 0
                    and identity not in self._ending
                    and (pause := self._gives_way(identity, run)) is not None
                ):
                    self._end(identity, pause)
                    shortage -= 1
            except LostLeaseError:
                self._end(identity)
                if run.ended:
                    self._forget(identity)

    def _refresh(self) -> None:
        """Keep where topics end, of as many as a third of a lease allows. The others' turn is at the next beats."""
        began = self._clock()
        if not self._due and began - self._refreshed >= _REFRESH_SECONDS:
            self._refreshed, self._due = began, list(self._runs)
        while self._due and self._clock() - began < self._settings.lease_seconds / 3:
            identity = self._due.pop()
            try:
                if identity in self._runs:
                    self._runs[identity].refresh()
            except LostLeaseError:
                self._end(identity)

    def _gives_way(self, identity: int, run: Running) -> float | None:
        """For how many seconds another may have the slot of one that does nothing; None: it keeps its slot."""
        if (failure := run.failure) is not None:
            return self._failed(identity, run.claim, failure)
        return self._settings.longest_pause_seconds if run.note is not None and run.note.idle else None

    def _report(self, identity: int, run: Running) -> None:
        """Of one that runs: what fails or is waited for, or that it works again."""
        failure, reported = run.failure, self._reported.get(identity)
        if failure is not None:
            if failure != reported:
                self._noted.pop(identity, None)
                self._failed(identity, run.claim, failure)
            return
        if reported is not None:
            if not run.works:
                return
            self._leases.report(run.claim, transitions.recovered)
            log.info("%s works again", run.claim.subscription.reference)
            del self._reported[identity]
        self._note(identity, run)

    def _note(self, identity: int, run: Running) -> None:
        """Tables of which nothing is published, or that there are some now."""
        note, reference = run.note, run.claim.subscription.reference
        if note == self._noted.get(identity) or (note is None and not run.works):
            return
        reason, action = ("", "") if note is None else (note.reason, note.action)
        self._leases.report(run.claim, partial(transitions.noted, reason=reason, action=action))
        if note is None:
            del self._noted[identity]
            log.info("%s waits for nothing any more", reference)
        else:
            self._noted[identity] = note
            log.warning("%s waits: %s. %s", reference, reason, action)

    def _failed(self, identity: int, claim: Claim, failure: Failure) -> float:
        """In how many seconds it is tried again, where it ends by that.

        Raises LostLeaseError where another runs it by now: what fails here is no operator's concern then.
        """
        failed = partial(transitions.failed, reason=failure.reason, action=failure.action)
        attempts = self._leases.report(claim, failed).attempts

        if self._reported.get(identity) != failure:
            log.warning("%s fails: %s. %s", claim.subscription.reference, failure.reason, failure.action)
        self._reported[identity] = failure
        return Waits(1.0, self._settings.longest_pause_seconds).after(max(1, attempts), self._random())

    def _ended(self, identity: int, run: Running) -> None:
        """Let others have it, where it failed by itself only after a pause: meanwhile its slot is another's."""
        pause = self._ending.get(identity, 0.0)
        if identity not in self._ending and run.failure is not None:
            pause = self._failed(identity, run.claim, run.failure)
            log.info("%s", with_next_try(f"{run.claim.subscription.reference} fails", pause))
        elif identity not in self._ending and run.finished is not None:
            self._leases.report(run.claim, partial(transitions.finished, reason=run.finished))
            log.info("%s is done with its snapshot", run.claim.subscription.reference)
        self._forget(identity)
        self._leases.release(run.claim, pause)

    def _take_up(self, portion: int) -> None:
        """Claim what is free."""
        for claim in self._leases.claim(portion - self.running, self._not_run):
            log.info("%s: claimed (token %d)", claim.subscription.reference, claim.token)
            identity = claim.subscription.id
            if claim.subscription.state is State.FAILING:  # as another worker has reported it
                self._reported[identity] = Failure(claim.subscription.reason, claim.subscription.action)
            elif claim.subscription.reason:
                self._noted[identity] = Failure(claim.subscription.reason, claim.subscription.action)
            self._runs[identity] = self._start(claim)

    def _not_run(self, identities: Sequence[int]) -> Sequence[int]:
        """Without those that still finish a batch of an earlier claim: nothing is run twice at a time."""
        return self._shuffle([identity for identity in identities if identity not in self._runs])

    def _abandon(self) -> None:
        """The leases have ended while the meta database did not answer: others may run all of it by now."""
        if self.running:
            log.warning(
                "the meta database has not answered for %g s, as long as a lease: %d subscriptions stop, and are "
                "claimed again once it answers",
                self._settings.lease_seconds,
                self.running,
            )
        for identity in [identity for identity, run in self._runs.items() if run.ended]:
            self._forget(identity)

    def _forget(self, identity: int) -> None:
        for by_identity in (self._runs, self._ending, self._noted, self._reported):
            by_identity.pop(identity, None)


def _same(stored: Subscription, claimed: Subscription) -> bool:
    """Whether what is stored is still what was claimed, and is to run."""
    return stored.state in RUNNABLE and stored.revision == claimed.revision


def spark_settings(settings: Settings) -> dict[str, Scalar]:
    """[stream.spark], where the jobs of all subscriptions have their turns unless somebody has set it otherwise."""
    return {_FAIR: "FAIR", **settings.stream.spark.reveal()}


@contextmanager
def working(settings: Settings, database: MetaDatabase, spark: SparkOnce) -> Iterator[Worker]:
    """A worker of this process, which leaves in order."""
    server = settings.server
    owner = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
    leases = Leases(database, settings.topics.prefix, owner, server.lease_seconds)
    session = spark()
    quiet_pools(session)

    readings = Readings(session.newSession, server.checkpoints)
    readings.remove_leftovers()
    ends = SharedEnds(PartitionEnds(settings.kafka.reveal()).of, time.monotonic)

    def start(claim: Claim) -> Running:
        return StreamRun(claim, settings, leases, session.newSession, readings, ends.of)

    chance = random.SystemRandom()
    worker = Worker(
        leases,
        start,
        server,
        clock=time.monotonic,
        random=chance.random,
        shuffle=lambda ids: chance.sample(ids, len(ids)),
    )
    log.info("worker %s: subscriptions of %s in %s", owner, settings.topics.prefix, database.location)
    try:
        yield worker
    finally:
        worker.close()
        readings.close()
        log.info("worker %s has left", owner)


def work(worker: Worker, stop: threading.Event, spark: SparkOnce, lease_seconds: float) -> None:
    """Until it is stopped. Raises ServiceError where Spark's Java has ended: a new process has to be started."""
    with watched(worker):
        while not stop.wait(min(_BEAT_SECONDS, lease_seconds / 6)):
            if spark.ended:
                raise ServiceError(java_end() or "Spark's Java has ended")
            worker.beat()


def watched(worker: Worker) -> AbstractContextManager[None]:
    """While inside, all that runs stops when the leases end, whatever a beat waits for."""

    def watch(over: threading.Event) -> None:
        lease_seconds = 0.0
        while not over.wait(lease_seconds if lease_seconds > 0 else _BEAT_SECONDS):
            lease_seconds = worker.expire()

    return beside(watch, "leases")
