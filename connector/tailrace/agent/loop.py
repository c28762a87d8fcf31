"""The agent's run: sessions with Kafka until it is stopped, each read -> translate -> publish -> commit -> release."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import takewhile
from typing import Final

from tailrace.agent.commits import Commits, Transaction
from tailrace.agent.limits import Limits
from tailrace.agent.notes import CommitNotes, Losses
from tailrace.agent.parking import DeadLetters, Parking, Report, Unparked
from tailrace.agent.ports import Capture, Environment, Publisher
from tailrace.agent.stalls import Outage, Slowness, Standstill
from tailrace.agent.tables import Bypasses, TableTopics
from tailrace.agent.translation import Outgoing, Published, Translation
from tailrace.commitlog.frames import Entry
from tailrace.errors import HeldError, RenewalError, UnexplainedError
from tailrace.publish.record import size_of
from tailrace.state import FIRST_EPOCH, QUARANTINED_CAUSE, ParkingLot, Resume, Truncation
from tailrace_common.backoff import Backoff
from tailrace_common.kafka import StoppedError
from tailrace_schemas.change import Source
from tailrace_schemas.errors import DecodeError, RefusedError, ServiceError
from tailrace_schemas.position import NO_POSITION, Position
from tailrace_schemas.topics import Internal

_LOG: Final = logging.getLogger("tailrace.agent")
# Messages that are made before they are sent, in bytes.
_MOST_AT_ONCE: Final = 4 << 20


def _effective_position(truncation: Truncation) -> Position:
    return truncation.effective_position


class Session:
    """The work between two starts of the publisher: mutations in position order, each published or parked."""

    def __init__(
        self,
        environment: Environment,
        limits: Limits,
        publisher: Publisher,
        capture: Capture,
        resume: Resume,
        node: Source,
        losses: Losses,
        topics: TableTopics,
    ) -> None:
        self._environment = environment
        self._limits = limits
        self._capture = capture
        self._losses = losses
        self._lot = ParkingLot(resume.parked, limits.parked)
        self._transaction = Transaction(
            publisher,
            limits,
            environment.health,
            environment.clock,
            environment.milliseconds,
            environment.pace,
            environment.trace,
        )
        self._notes = CommitNotes(environment, limits, node.host, losses)
        self._commits = Commits(environment, limits, capture, self._transaction, self._lot, self._notes, resume)
        self._translation = Translation(environment, limits, node, capture, self._lot, self._commits.commit_open)
        self._parking = Parking(environment, limits, capture, self._translation, self._lot)
        self._letters = DeadLetters(environment, limits, node.host, capture)
        self._topics = topics
        self._bypasses = Bypasses(environment.routing, environment.health)
        self._entries: deque[Entry] = deque()
        self._published = Published(capture, resume.position, environment.milliseconds())
        self._held = False
        self._backoff = Backoff(limits.waits)
        self._looked = environment.milliseconds()

    @property
    def committed(self) -> bool:
        """Whether a transaction came through."""
        return self._commits.succeeded

    @property
    def proven(self) -> bool:
        """Whether publishing works, as far as there was something to publish."""
        return self.committed or not self._transaction.open

    def close(self) -> None:
        """Give up what is not committed."""
        self._transaction.close()

    def finish(self) -> None:
        """Commit what is open, and how far it came."""
        self._commits.finish(release=not self._held)

    @property
    def state(self) -> object:
        """What rounds change that get on: the position, what is committed beside it, what is set aside."""
        return self._commits.done, self._commits.news, len(self._capture.quarantined)

    def step(self) -> bool:
        """One round: a batch of mutations, or a wait. Returns at a mutation's boundary.

        Whether it came to rest, as there was nothing to do, or what there is must wait.
        """
        self._environment.health.alive()
        if not self._entries:
            self._read()
        elif self._held:
            self._look_again(changed=False)
        if not self._entries:
            return self._settle()
        while self._entries and not self._environment.stop():
            self._unpark(self._parking.retry_explained())
            if not self._publish_plain() and not self._publish_next():
                return True
        return False

    # -- publishing

    def _publish_next(self) -> bool:
        """Publish, park or quarantine the next mutation; False where it holds up all later ones."""
        entry = self._entries[0]
        try:
            self._truncate(entry.position)
            outgoing = self._translation.records(entry)
        except (UnexplainedError, HeldError) as error:
            if not self._parking.park(entry, error):
                self._hold(entry, str(error))
                return False
            outgoing = Outgoing(0, ())
        except DecodeError as error:
            self._quarantine(entry, error)
            return True
        self._unpark(self._parking.retry_explained())
        self._go_on()
        self._send(outgoing)
        self._published.add([self._entries.popleft()])
        self._commits.done = entry.position
        self._commits.commit_full()
        return True

    def _send(self, outgoing: Outgoing) -> None:
        """Put a mutation into the transaction, or into the next one."""
        self._commits.make_room(outgoing.size)
        outgoing.send(self._transaction.send_some)
        self._transaction.end_mutation()

    def _publish_plain(self) -> bool:
        """Publish the plain mutations that come first, as many as there is room for; whether there was one."""
        entries: Iterable[Entry] = self._entries
        if pending := self._environment.schema.truncations.pending:
            first = min(truncation.effective_position for truncation in pending)
            entries = takewhile(lambda entry: entry.position <= first, entries)
        most_bytes = min(self._transaction.bytes_left, _MOST_AT_ONCE)
        done, records = self._translation.plain(entries, self._transaction.room, most_bytes)
        if not done:
            return False
        self._go_on()
        self._commits.make_room(size_of(records))
        self._transaction.send(records, done)
        self._commits.done = self._entries[done - 1].position
        self._published.add([self._entries.popleft() for _ in range(done)])
        self._commits.commit_full()
        return True

    def _truncate(self, until: Position | None = None) -> None:
        """Publish truncations whose effective position is before `until`, or before which everything was published.

        That includes segments without an index. Truncations of tables that are held or unknown wait. Raises
        ServiceError.
        """
        # By their places and not by their records' positions: a reader that applies changes in order must get those
        # that a truncation left after it. Truncations are read ahead of the changes, so mostly that is known in time.
        schema = self._environment.schema
        for truncation in sorted(schema.truncations.pending, key=_effective_position):
            if until is None:
                settled = schema.truncations.settled(truncation, schema.read_up_to)
                if not self._capture.passed(truncation.position, settled=settled):
                    return
            elif truncation.effective_position >= until:
                return
            if self._lot.holds(truncation.table_id) and schema.history.newest(truncation.table_id) is None:
                continue
            try:
                records = self._translation.truncation(truncation, late=self._published.behind(truncation))
            except HeldError:  # health says so already, as the table's changes are held
                continue
            self._transaction.send(records)
            schema.truncations.published(truncation)

    def _settle(self) -> bool:
        """Nothing to read: commit what is open when its time has come, or the position alone, else wait.

        Whether nothing more was to do than to wait, or to tell readers that the host is still there.
        """
        self._environment.health.caught_up()
        self._notes.complete(self._looked)
        self._transaction.relax()
        self._truncate()
        if self._transaction.open and self._transaction.left > 0:
            self._environment.wait(self._transaction.left)
            return True
        has_work = self._transaction.open or self._commits.has_work()
        if has_work or self._commits.due():
            self._commits.commit(caught_up=True)
            return not has_work
        self._transaction.require_time(0)
        self._environment.health.count(all_published=1)
        # What an earlier run committed and did not come to delete.
        released = self._commits.release()
        self._environment.wait(self._limits.poll_seconds)
        return not released

    # -- reading

    def _read(self) -> None:
        self._looked = self._environment.milliseconds()
        try:
            changed = self._read_more()
        except ServiceError:
            self.finish()  # what stands before the file that cannot be read is not held up by it
            raise
        self._report()
        self._look_again(changed)

    def _read_more(self) -> bool:
        """Whether the schema changed."""
        changed, entries = False, self._capture.read(self._limits.read)
        if not entries and self._capture.unjudged is not None:
            changed = self._follow(self._capture.unjudged)
            entries = self._capture.read(self._limits.read)
        self._entries.extend(entries)
        # What the index has released stands in the file: so does all DDL before it.
        return self._follow(entries[-1].position if entries else None) or changed

    def _follow(self, until: Position | None) -> bool:
        schema = self._environment.schema
        changed = schema.follow(until)
        while schema.behind:
            self._commits.commit(release=False)
            changed |= schema.follow(until)
        return changed

    def _look_again(self, changed: bool) -> None:
        """Follow events, and try what was refused or parked: at once where the schema has changed."""
        if self._translation.due:
            changed |= self._translation.learn()
        self._bypasses.tell(self._environment.schema.bypassing)
        changed |= self._environment.selecting(self._environment.schema.history)
        changed |= self._topics.open(changed)
        self._tend_parked(changed)

    def _report(self) -> None:
        health = self._environment.health
        for segment, quarantined in self._capture.quarantined.items():
            words = f"quarantined behind {quarantined.offset}: {quarantined.reason}; its file is kept in cdc_raw"
            health.degrade(f"{QUARANTINED_CAUSE}{segment}", words)
        self._losses.tell(self._capture.losses)
        for table, words in self._environment.schema.inferred.items():
            health.degrade(f"definition of {table}", words)

    # -- what is parked

    def _tend_parked(self, changed: bool) -> None:
        """Publish the parked mutations that can be by now, then report those that have waited for too long."""
        was_empty = not self._lot.lots
        self._unpark(self._parking.retry(changed))
        if was_empty:
            return
        for lot in self._parking.overdue():
            report = self._letters.of(lot)
            self._note(report)
            self._parking.reported(lot)
            if report.lost:
                self._parking.lose(lot, report.lost)
        self._parking.show()

    def _unpark(self, mutations: Iterator[Unparked]) -> None:
        for mutation in mutations:
            self._send(mutation.outgoing)
            self._parking.published(mutation)
            self._commits.commit_full()
        for lot, offsets in self._parking.take_lost().items():
            self._note(self._letters.of_lost(lot, offsets))
            self._parking.lose(lot, offsets)

    def _note(self, report: Report) -> None:
        for key, value in report.records:
            self._transaction.note(Internal.DEAD_LETTER, key, value)

    # -- what cannot be published

    def _quarantine(self, entry: Entry, error: DecodeError) -> None:
        """The mutation at hand cannot be read, and its segment from there on; the next segment goes on."""
        segment = entry.position.segment
        done = self._commits.done
        good = done if done is not None and done.segment == segment else None
        error.file = error.file or entry.file
        self._capture.quarantine(good or Position(entry.position.epoch, segment, 0), error)
        self._entries = deque(queued for queued in self._entries if queued.position.segment != segment)
        self._report()

    def _go_on(self) -> None:
        """The mutation at hand can be published."""
        if self._held:
            self._held = False
            self._backoff.reset()
            self._environment.health.recover("held")
            _LOG.info("resumed: the blocking mutation can now be published")

    def _hold(self, entry: Entry, reason: str) -> None:
        """Publish nothing from this mutation on, release nothing, and try again: soon, then less often."""
        self._commits.commit_open()
        words = (
            f"stopped at {entry.position} in {entry.file}: {reason}. Nothing later is published and no file released "
            "until that is settled"
        )
        if self._environment.health.degrade("held", words):
            _LOG.error("%s", words)
        self._held = True
        self._environment.pause(self._backoff.next(), lambda: self._translation.due)


class Agent:
    """Publishes one node's changes until it is stopped."""

    def __init__(self, environment: Environment, host: str, datacenter: str, limits: Limits | None = None) -> None:
        self._environment = environment
        self._host = host
        self._datacenter = datacenter
        self._limits = limits or Limits()
        self._outage = Outage(environment.health, environment.clock)
        self._slowness = Slowness(environment.pace, environment.health, environment.clock)
        self._standstill = Standstill(environment.health, environment.clock, self._limits)
        self._losses = Losses(environment, host)
        self._topics = TableTopics(environment, self._limits)

    def run(self) -> None:
        """Run until `stop`. After a failure of Kafka or of the directory it starts over from what Kafka has.

        Raises what no new start can cure: FencedError, LogEpochError, OffsetsError, SettingsError.
        """
        with closing(self._losses):
            self._run(Backoff(self._limits.waits))

    def _run(self, backoff: Backoff) -> None:
        while not self._environment.stop():
            try:
                self._session(backoff)
            except RenewalError as news:
                _LOG.info("%s", news)
                self._space(self._standstill.repeated())
            except StoppedError as error:
                _LOG.info("%s; the next start publishes them", error)
            except ServiceError as error:
                if isinstance(error, RefusedError):
                    self._environment.routing.refuse(error.topic, str(error))
                self._environment.health.ready(False)
                self._slowness.tell()
                self._outage.failed(error)
                self._outage.wait(backoff.next(), self._environment.pause)

    def _space(self, seconds: float) -> None:
        if seconds:
            self._environment.pause(seconds)

    def _session(self, backoff: Backoff) -> None:
        environment = self._environment
        with closing(environment.publisher()) as publisher:
            resume = publisher.start()
            self._losses.begin(publisher)
            epoch = FIRST_EPOCH if resume.position is None else resume.position.epoch
            environment.schema.begin(publisher.history(), resume, epoch)
            _LOG.info("publishing as host %s from position %s", self._host, resume.position or "the first segment")
            with closing(environment.capture(resume)) as capture:
                node = Source(self._host, self._datacenter, NO_POSITION, 0, 0)
                session = Session(
                    environment, self._limits, publisher, capture, resume, node, self._losses, self._topics
                )
                with closing(session):
                    self._run_session(session, backoff)

    def _run_session(self, session: Session, backoff: Backoff) -> None:
        environment = self._environment
        environment.health.recover("held")
        while not environment.stop():
            rested = session.step()
            self._space(self._standstill.judge(session.state, rested=rested))
            self._slowness.tell()
            self._losses.look()
            if session.proven:
                self._outage.over()
                environment.health.ready(True)
            if session.committed:
                backoff.reset()
        session.finish()
