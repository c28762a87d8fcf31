"""Commits of one session: when one is due, what goes with it, and which segments it releases."""

from __future__ import annotations

import logging
from typing import Final

from tailrace.agent.notes import CommitNotes
from tailrace.agent.parts import Capture, Limits, Parts
from tailrace.agent.transaction import Transaction
from tailrace.state.parked import ParkingLot
from tailrace.state.resume import Resume
from tailrace_schemas.position import Position

_LOG: Final = logging.getLogger("tailrace.agent")


class Commits:
    """Changes and position go into one transaction; then, and only then, finished segments may be released."""

    def __init__(
        self,
        parts: Parts,
        limits: Limits,
        capture: Capture,
        transaction: Transaction,
        lot: ParkingLot,
        notes: CommitNotes,
        resume: Resume,
    ) -> None:
        self._parts = parts
        self._limits = limits
        self._capture = capture
        self._transaction = transaction
        self._lot = lot
        self._notes = notes
        self.done = self._committed = resume.position
        """The position of the last mutation that was sent or passed over: the next commit's."""
        self.succeeded = False
        """Whether a transaction came through: a start alone proves nothing."""
        self.news = 0
        """How many transactions had a change, or said anything that the one before had not."""
        self._resume = resume
        self._beside: tuple[object, ...] = ()
        self._committed_ddl = resume.schema
        self._moved = parts.clock()

    def due(self) -> bool:
        """Whether to commit without any changes, as everything that was released is read."""
        return self.has_work() or self._notes.due(self.done, caught_up=True, durable=self._capture.durable)

    def has_work(self) -> bool:
        """Whether there is more to commit than that this host is still there, though no change."""
        return self._has_news() or self._is_worth_moving()

    def _has_news(self) -> bool:
        """Whether there is more than a position to commit, though no change."""
        return self._parts.schema.news or self._lot.changed

    def _is_worth_moving(self) -> bool:
        """Whether a commit without changes is due: before a release at once, else from time to time."""
        ddl_position = self._parts.schema.read_up_to
        moved = self.done is not None and self.done != self._committed
        if self.done is not None:
            news = moved or ddl_position != self._committed_ddl
            if (self._capture.finished(self.done) and news) or self._capture.news(self.done):
                return True
        rolled = ddl_position is not None and (
            self._committed_ddl is None or ddl_position.segment != self._committed_ddl.segment
        )
        return (moved or rolled) and self._parts.clock() - self._moved >= self._limits.idle_seconds

    def make_room(self, size: int) -> None:
        """Commit first where the open transaction has no room for so many bytes: of one mutation, or of several that
        fit. Raises RenewalError as `Transaction.require_time` does."""
        if size > self._transaction.bytes_left:
            self.commit_open()
        self._transaction.require_time(size)

    def commit_open(self) -> None:
        """Commit what is open, in the middle of other work: nothing is released."""
        if self._transaction.open:
            self.commit(release=False)

    def commit_full(self) -> None:
        """Commit if the transaction takes no more mutations."""
        if self._transaction.full:
            self.commit()

    def finish(self, *, release: bool) -> None:
        """Commit what is open, and the position."""
        news = self.done != self._committed or (self.done is not None and self._capture.news(self.done))
        if self._transaction.open or news or self._has_news():
            self.commit(release=release)

    def commit(self, release: bool = True, caught_up: bool = False) -> None:
        """Commit changes, position, and what is new of schema, losses and parked mutations."""
        schema, capture, done = self._parts.schema, self._capture, self.done
        losses = capture.losses
        resume = Resume(
            done,
            capture.open_segments(),
            tuple(capture.quarantined.values()),
            unread=capture.unread(done),
            reported=capture.reported(done),
            parked=self._lot.lots,
        )
        resume = schema.noted(resume)
        for topic, key, value in self._notes.records(resume, losses, caught_up, capture.durable):
            self._transaction.note(topic, key, value)
        beside = (*losses, *schema.unsent, *schema.events)
        changes = self._transaction.commit(resume, schema.unsent)
        self.news += changes > 0 or resume != self._resume or beside not in ((), self._beside)
        self._resume, self._beside = resume, beside
        schema.sent()
        self._lot.changed = False
        capture.committed(done, losses)
        self._notes.committed(losses)
        _LOG.debug("committed %d changes up to %s", changes, done)
        self.succeeded = True
        self._committed, self._committed_ddl, self._moved = resume.position, resume.schema, self._parts.clock()
        if release:
            self.release()

    def release(self) -> int:
        """Release what is committed, but no segment with DDL that may be unread: none that `schema` is not behind.

        How many segments that were.
        """
        if self._committed is None or (ddl_position := self._committed_ddl) is None:
            return 0
        upto = min(self._committed, Position(ddl_position.epoch, ddl_position.segment, -1))
        if not self._capture.finished(upto):
            return 0
        released = len(self._capture.release(upto))
        self._parts.health.count(released=released)
        return released
