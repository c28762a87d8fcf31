"""The agent's run: sessions with Kafka, and in each of them read -> translate -> publish -> commit -> release."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from contextlib import closing
from itertools import takewhile
from typing import Final

from tailrace.agent.losses import Losses
from tailrace.agent.outage import Outage
from tailrace.agent.parking import Parking
from tailrace.agent.parts import Backoff, Capture, Limits, Parts, Publisher
from tailrace.agent.progress import ProgressNotes
from tailrace.agent.slowness import Slowness
from tailrace.agent.transaction import Transaction
from tailrace.agent.translation import Outgoing, Translation
from tailrace.commitlog.entry import Entry
from tailrace.errors import HeldError, RenewalError, UnexplainedError
from tailrace.history.events import encode_event, event_key
from tailrace.publish.record import size_of
from tailrace.state.parked import ParkingLot
from tailrace.state.resume import FIRST_EPOCH, Resume
from tailrace_common.kafka import StoppedError
from tailrace_schemas.change import Source
from tailrace_schemas.errors import DecodeError, RefusedError, ServiceError
from tailrace_schemas.position import Position
from tailrace_schemas.topics import Internal

_LOG: Final = logging.getLogger("tailrace.agent")
# Messages that are made before they are sent, in bytes.
_MOST_AT_ONCE: Final = 4 << 20


class Agent:
    """Publishes one node's changes until it is told to stop."""

    def __init__(self, parts: Parts, host: str, datacenter: str, limits: Limits | None = None) -> None:
        self._parts = parts
        self._host = host
        self._datacenter = datacenter
        self._limits = limits or Limits()
        self._outage = Outage(parts.health, parts.clock)
        self._slowness = Slowness(parts.pace, parts.health, parts.clock)
        self._losses = Losses(parts, host)

    def run(self) -> None:
        """Run until `stop`. After a failure of Kafka or of the directory it starts over from what Kafka has.

        Raises what no new start can cure: FencedError, LogEpochError, OffsetsError, SettingsError.
        """
        with closing(self._losses):
            self._run(Backoff(self._limits))

    def _run(self, backoff: Backoff) -> None:
        while not self._parts.stop():
            try:
                self._session(backoff)
            except RenewalError as news:
                _LOG.info("%s", news)
            except StoppedError as error:
                _LOG.info("%s; the next start publishes them", error)
            except ServiceError as error:
                if isinstance(error, RefusedError):
                    self._parts.routing.refuse(error.topic, str(error))
                self._parts.health.ready(False)
                self._slowness.tell()
                self._outage.failed(error)
                self._outage.wait(backoff.next(), self._parts.pause)

    def _session(self, backoff: Backoff) -> None:
        parts = self._parts
        with closing(parts.publisher()) as publisher:
            resume = publisher.start()
            self._losses.begin(publisher)
            epoch = FIRST_EPOCH if resume.position is None else resume.position.epoch
            parts.schema.begin(publisher.history(), resume, epoch)
            _LOG.info("publishing as host %s from position %s", self._host, resume.position or "the first segment")
            with closing(parts.capture(resume)) as capture:
                node = Source(self._host, self._datacenter, 0, 0, 0, 0, 0)
                run = _Run(parts, self._limits, publisher, capture, resume, node, self._losses)
                parts.health.recover("held")
                while not parts.stop():
                    run.step()
                    self._slowness.tell()
                    self._losses.look()
                    if run.proven:
                        self._outage.over()
                        parts.health.ready(True)
                    if run.committed:
                        backoff.reset()
                run.finish()


class _Run:
    """One stretch of work between two starts of the publisher: its position, and the transaction that is open."""

    def __init__(
        self,
        parts: Parts,
        limits: Limits,
        publisher: Publisher,
        capture: Capture,
        resume: Resume,
        node: Source,
        losses: Losses,
    ) -> None:
        self._parts = parts
        self._losses = losses
        self._limits = limits
        self._capture = capture
        self._host = node.host
        self._transaction = Transaction(publisher, limits, parts.health, parts.clock, parts.milliseconds, parts.pace)
        self._parked = ParkingLot(resume.parked, limits.parked)
        self._translation = Translation(
            parts, limits, node, self._commit_what_is_open, self._parked.holds, lambda: capture.durable
        )
        self._parking = Parking(
            parts,
            limits,
            node.host,
            capture,
            self._translation,
            self._transaction,
            self._parked,
            self._commit_what_is_open,
        )
        self._progress = ProgressNotes(
            parts.cluster, node.host, limits.progress_seconds, parts.clock, parts.milliseconds
        )
        self.committed = False
        """Whether a transaction came through: a start alone proves nothing."""
        self._entries: deque[Entry] = deque()
        self._held = self._refused = False
        self._backoff, self._opening = Backoff(limits), Backoff(limits)
        self._open_again = 0.0
        self._done = self._committed = resume.position
        self._moved = parts.clock()
        self._looked = parts.milliseconds()
        self._schema_place = resume.schema

    def step(self) -> None:
        """One round: a batch of mutations, or a wait. Returns at a mutation's boundary."""
        self._parts.health.alive()
        if not self._entries:
            self._read()
        elif self._held:
            self._look_again(changed=False)
        if not self._entries:
            self._settle()
            return
        while self._entries and not self._parts.stop():
            if self._publish_plain():
                continue
            entry, learned = self._entries[0], self._translation.learned
            try:
                self._truncate(entry.position)
                outgoing = self._translation.records(entry)
            except (UnexplainedError, HeldError) as error:
                if not self._parking.park(entry, error):
                    self._hold(entry, str(error))
                    return
                outgoing = Outgoing(0, ())
            except DecodeError as error:
                self._quarantine(entry, error)
                continue
            if self._translation.learned > learned:
                self._parking.retry_what_is_explained()
            self._go_on()
            self._transaction.make_room(outgoing.size, self._commit_what_is_open)
            outgoing.send(self._transaction.send_some)
            self._transaction.end_mutation()
            self._entries.popleft()
            self._done = entry.position
            if self._transaction.full:
                self._commit()

    def _publish_plain(self) -> bool:
        """As many mutations in a row as there is nothing to say about, and room for; whether there was one."""
        entries: Iterable[Entry] = self._entries
        if pending := self._parts.schema.truncations.pending:
            first = pending[0].position
            entries = takewhile(lambda entry: entry.position <= first, entries)
        most_bytes = min(self._transaction.bytes_left, _MOST_AT_ONCE)
        done, records = self._translation.plain(entries, self._transaction.room, most_bytes)
        if not done:
            return False
        self._go_on()
        self._transaction.make_room(size_of(records), self._commit_what_is_open)
        self._transaction.send(records, done)
        self._done = self._entries[done - 1].position
        if done == len(self._entries):
            self._entries.clear()
        for _ in range(min(done, len(self._entries))):
            self._entries.popleft()
        if self._transaction.full:
            self._commit()
        return True

    @property
    def proven(self) -> bool:
        """Whether publishing works, as far as there was something to publish."""
        return self.committed or not self._transaction.open

    def finish(self) -> None:
        """Commit what is open, and how far it came."""
        news = self._done != self._committed or (self._done is not None and self._capture.news(self._done))
        if self._transaction.open or news or self._is_untold:
            self._commit(release=not self._held)

    # -- reading

    def _read(self) -> None:
        self._looked = self._parts.milliseconds()
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
        schema = self._parts.schema
        changed = schema.follow(until)
        while schema.behind:
            self._commit(release=False)
            changed |= schema.follow(until)
        return changed

    def _look_again(self, changed: bool) -> None:
        """Follow events, and try what was refused or parked: at once where the schema has changed."""
        if self._parts.schema.hinted:
            changed |= self._translation.learn()
        changed |= self._parts.selecting(self._parts.schema.history)
        if changed or (self._refused and self._parts.clock() >= self._open_again):
            changed |= self._open_topics()
        self._parking.tend(changed)

    def _report(self) -> None:
        health = self._parts.health
        for segment, quarantined in self._capture.quarantined.items():
            words = f"quarantined behind {quarantined.offset}: {quarantined.reason}; its file is kept in cdc_raw"
            health.degrade(f"segment {segment}", words)
        self._losses.tell(self._capture.losses)
        for table, words in self._parts.schema.inferred.items():
            health.degrade(f"definition of {table}", words)

    def _open_topics(self) -> bool:
        """Make ready what there is; whether something is that was refused before. What is refused is reported now, and
        parked when its changes come."""
        health = self._parts.health
        self._refused, opened = False, False
        for table in filter(self._parts.routing.publishes, self._parts.schema.history.tracked()):
            try:
                self._parts.routing.open(table)
                opened |= health.recover(f"schema of {table}")
            except HeldError as error:
                self._refused = True
                if health.degrade(f"schema of {table}", str(error)):
                    _LOG.error("%s", error)
        if self._refused:
            self._open_again = self._parts.clock() + self._opening.next()
        else:
            self._opening.reset()
        return opened

    # -- truncations

    def _truncate(self, until: Position | None = None) -> None:
        """Publish those that stand before a mutation; without one, those before which everything was published that
        there is, also in segments without an index. Those of tables that are held or unknown wait. Raises ServiceError.
        """
        schema = self._parts.schema
        for truncation in tuple(schema.truncations.pending):
            if until is None:
                settled = schema.truncations.settled(truncation, schema.place)
                if not self._capture.passed(truncation.position, settled=settled):
                    return
            elif truncation.position >= until:
                return
            if self._parked.holds(truncation.table_id) and schema.history.newest(truncation.table_id) is None:
                continue
            try:
                records = self._translation.truncation(truncation)
            except HeldError:  # health says so already, as the table's changes are held
                continue
            self._transaction.send(records)
            schema.truncations.published(truncation)

    # -- committing

    def _settle(self) -> None:
        """Nothing to read: commit what is open when its time has come, or the position alone, else wait."""
        self._parts.health.caught_up()
        self._progress.complete(self._looked)
        self._transaction.relax()
        self._truncate()
        if self._transaction.open and self._transaction.left > 0:
            self._parts.wait(self._transaction.left)
        elif (
            self._transaction.open
            or self._is_untold
            or self._is_worth_moving()
            or self._progress.due(self._done, caught_up=True, durable=self._capture.durable)
        ):
            self._commit(caught_up=True)
        else:
            self._transaction.require_time(0)
            # What an earlier run committed and did not come to delete.
            self._release()
            self._parts.wait(self._limits.poll_seconds)

    @property
    def _is_untold(self) -> bool:
        """Whether there is more than a position to commit, though no change."""
        return self._parts.schema.news or self._parked.changed

    def _is_worth_moving(self) -> bool:
        """Whether a commit without changes is due: before a release at once, else from time to time."""
        ddl_position = self._parts.schema.place
        moved = self._done is not None and self._done != self._committed
        if self._done is not None:
            news = moved or ddl_position != self._schema_place
            if (self._capture.finished(self._done) and news) or self._capture.news(self._done):
                return True
        rolled = ddl_position is not None and (
            self._schema_place is None or ddl_position.segment != self._schema_place.segment
        )
        return (moved or rolled) and self._parts.clock() - self._moved >= self._limits.idle_seconds

    def _commit_what_is_open(self) -> None:
        if self._transaction.open:
            self._commit(release=False)

    def _commit(self, release: bool = True, caught_up: bool = False) -> None:
        """Commit changes and position in one transaction; then, and only then, finished segments may go."""
        schema = self._parts.schema
        due = self._progress.due(self._done, caught_up, self._capture.durable)
        if not self._transaction.open and self._done is None and not self._is_untold and not due:
            return
        capture, done = self._capture, self._done
        losses = capture.losses
        for record in self._losses.records(losses):
            self._transaction.note(Internal.PROGRESS, *record)
        resume = Resume(
            done,
            capture.open_segments(),
            tuple(capture.quarantined.values()),
            unread=capture.unread(done),
            reported=capture.reported(done),
            parked=self._parked.lots,
        )
        resume = schema.noted(resume)
        if (progress := self._progress.record(resume, caught_up, capture.durable)) is not None:
            self._transaction.note(Internal.PROGRESS, *progress)
        for event in schema.events:
            self._transaction.note(
                Internal.SCHEMA_CHANGES, event_key(self._host, event), encode_event(self._host, event)
            )
        changes = self._transaction.commit(resume, schema.unsent)
        schema.sent()
        self._parked.changed = False
        capture.committed(done, losses)
        self._losses.committed(losses)
        _LOG.debug("committed %d changes up to %s", changes, self._done)
        self.committed = True
        self._committed, self._schema_place, self._moved = resume.position, resume.schema, self._parts.clock()
        if release:
            self._release()

    def _release(self) -> None:
        """Release what is committed, but no segment of which DDL may be unread: none that `schema` is not behind."""
        if self._committed is None or (ddl_position := self._schema_place) is None:
            return
        upto = min(self._committed, Position(ddl_position.epoch, ddl_position.segment, -1))
        if self._capture.finished(upto):
            self._parts.health.count(released=len(self._capture.release(upto)))

    # -- what cannot be published

    def _quarantine(self, entry: Entry, error: DecodeError) -> None:
        """The mutation at hand cannot be read, and its segment from there on; the next segment goes on."""
        segment = entry.position.segment
        good = self._done if self._done is not None and self._done.segment == segment else None
        error.file = error.file or entry.file
        self._capture.quarantine(good or Position(entry.position.epoch, segment, 0), error)
        self._entries = deque(queued for queued in self._entries if queued.position.segment != segment)
        self._report()

    def _go_on(self) -> None:
        """The mutation at hand can be published."""
        if self._held:
            self._held = False
            self._backoff.reset()
            self._parts.health.recover("held")
            _LOG.info("resumed: the blocking mutation can now be published")

    def _hold(self, entry: Entry, reason: str) -> None:
        """Publish nothing from this mutation on, release nothing, and try again: soon, then less often."""
        self._commit_what_is_open()
        words = (
            f"stopped at {entry.position} in {entry.file}: {reason}. Nothing later is published and no file released "
            "until that is settled"
        )
        if self._parts.health.degrade("held", words):
            _LOG.error("%s", words)
        self._held = True
        self._parts.pause(self._backoff.next(), lambda: self._parts.schema.hinted)
