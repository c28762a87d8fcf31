"""Parking: what nothing explains, or nobody takes, is set aside, tried again, and in the end told in dead letters."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final
from uuid import UUID

from tailrace.agent.parts import Backoff, Capture, Limits, Parts, reread
from tailrace.agent.transaction import Transaction
from tailrace.agent.translation import Translation
from tailrace.commitlog.entry import Entry
from tailrace.errors import HeldError, TooLargeError, UnexplainedError
from tailrace.publish.dead_letters import DeadLetter, dead_letter, encode_letter, letter_key, payload_records
from tailrace.state.parked import Parked, ParkingLot
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.topics import Internal

_LOG: Final = logging.getLogger("tailrace.agent")


class Parking:
    """The parked mutations of one session. `commit` ends the open transaction, in the middle of a long retry.

    A mutation is parked whole, and published whole when it can be: with `origin = parked`, behind what came later.
    Those that wait for a table are published before any later change of that table.
    """

    def __init__(
        self,
        parts: Parts,
        limits: Limits,
        host: str,
        capture: Capture,
        translation: Translation,
        transaction: Transaction,
        lot: ParkingLot,
        commit: Callable[[], None],
    ) -> None:
        self._parts = parts
        self._limits = limits
        self._host = host
        self._capture = capture
        self._translation = translation
        self._transaction = transaction
        self._state = lot
        self._commit = commit
        self._backoff = Backoff(limits)
        self._next = float("-inf")
        self._begun = False
        self._urgent: set[str] = set()
        self._tell()

    def park(self, entry: Entry, error: UnexplainedError | HeldError) -> bool:
        """Set a mutation aside; False where that cannot be, as there are too many."""
        if error.table_id is None or self._state.full:
            return False
        if not self._state.waiting:
            self._backoff.reset()
            self._next = self._parts.clock() + self._backoff.next()
        self._put(entry, error.table_id, str(error))
        if isinstance(error, TooLargeError):
            self._urgent.add(str(error))  # waiting alone does not help
        self._tell()
        return True

    def tend(self, changed: bool) -> None:
        """Try again what the schema may explain by now: all where it has `changed`, and at the start of the session;
        what is not yet told in dead letters also from time to time. Then tell what waited for too long."""
        changed, self._begun = changed or not self._begun, True
        if not self._state.lots:
            return
        due = self._state.waiting and self._parts.clock() >= self._next
        if changed:
            self._backoff.reset()
            self._retry(self._state.lots)
        elif due:
            self._translation.learn()
            self._retry(lot for lot in self._state.lots if not lot.dead)
        if changed or due:
            self._next = self._parts.clock() + self._backoff.next()
        self._bury()
        self._tell()

    def retry_what_is_explained(self) -> None:
        """The schema was read for a mutation, amid others that were read before: what waits for a table that is known
        by now goes before its later changes."""
        history = self._parts.schema.history
        lots = [lot for lot in self._state.lots if history.newest(lot.table) is not None]
        if lots:
            self._retry(lots)
            self._tell()

    # -- trying again

    def _retry(self, lots: Iterable[Parked]) -> None:
        retried = tuple(lots)
        blocked = {table for table in {lot.table for lot in retried} if not self._may_go(table)}
        free = [lot for lot in retried if lot.table not in blocked]
        lost: dict[Parked, tuple[int, ...]] = {}
        for entry, lot in reread(self._capture, free, lost):
            if lot.table not in blocked:
                self._again(entry, lot, blocked)
        for lot, offsets in lost.items():
            self._tell_letter(dead_letter(replace(lot, offsets=offsets), ()), self._parts.milliseconds())
            self._lose(lot, offsets)

    def _may_go(self, table: UUID) -> bool:
        """Whether what waits for a table has a chance."""
        newest = self._parts.schema.history.newest(table)
        if newest is None:
            return False
        try:
            self._parts.routing.open(newest)
        except HeldError:
            return False
        return True

    def _again(self, entry: Entry, lot: Parked, blocked: set[UUID]) -> None:
        """One mutation; a table that still cannot be published is added to those that are blocked."""
        try:
            outgoing = self._translation.parked_records(entry)
        except TooLargeError:
            return
        except (UnexplainedError, HeldError) as error:
            if error.table_id in (None, lot.table):
                blocked.add(lot.table)
            elif error.table_id is not None:  # this one came, and now it waits for another
                self._state.remove(lot, (entry.position.offset,))
                self._put(entry, error.table_id, str(error))
            return
        except DecodeError as error:
            _LOG.warning(
                "the mutation at %s in %s stays parked, as it cannot be decoded: %s", entry.position, entry.file, error
            )
            return
        self._transaction.make_room(outgoing.size, self._commit)
        outgoing.send(self._transaction.send_some)
        self._transaction.end_mutation()
        self._state.remove(lot, (entry.position.offset,))
        self._parts.health.count(unparked=1)
        if self._transaction.full:
            self._commit()

    # -- telling

    def _bury(self) -> None:
        """Dead letters of what has waited for too long; the segments stay."""
        now = self._parts.milliseconds()
        for lot in self._state.lots:
            waited = now - lot.since >= self._limits.parked_seconds * 1000 or lot.reason in self._urgent
            if lot.dead or not waited:
                continue
            lost = self._letter(lot, now)
            self._state.bury(lot)
            self._parts.health.count(dead_letters=1)
            _LOG.error(
                "%d mutations of segment %d, parked since %d, are reported as a dead letter and stay parked: %s",
                *(len(lot.offsets), lot.segment, lot.since, lot.reason),
            )
            if lost:
                self._lose(lot, lost)

    def _letter(self, lot: Parked, now: int) -> tuple[int, ...]:
        """Add the letter of a lot to the transaction; what is nowhere any more."""

        def again() -> Iterable[Entry]:
            return self._capture.reread(lot.epoch, lot.segment, lot.checksum, lot.offsets)

        letter = dead_letter(lot, again())
        self._tell_letter(letter, now)
        for entry in again() if self._limits.dead_letter_payloads else ():
            for key, chunk in payload_records(self._host, lot, entry):
                self._transaction.note(Internal.DEAD_LETTER, key, chunk)
        return letter.lost

    def _tell_letter(self, letter: DeadLetter, now: int) -> None:
        newest = self._parts.schema.history.newest(letter.lot.table)
        value = encode_letter(self._host, letter, None if newest is None else str(newest), now)
        self._transaction.note(Internal.DEAD_LETTER, letter_key(self._host, letter.lot), value)

    def _lose(self, lot: Parked, offsets: tuple[int, ...]) -> None:
        words = (
            f"{len(offsets)} parked mutations of segment {lot.segment} are lost: its file is gone or can no longer be "
            f"read. They waited because {lot.reason}"
        )
        if self._parts.health.degrade(f"lost {lot.segment}", words):
            _LOG.error("%s", words)
        self._parts.health.count(lost_parked=len(offsets))
        self._state.remove(lot, offsets)

    def _put(self, entry: Entry, table: UUID, reason: str) -> None:
        position = entry.position
        checksum = dict(self._capture.open_segments()).get(position.segment, 0)
        if self._state.park(position, checksum, table, self._parts.milliseconds(), reason):
            _LOG.error(
                "parked mutations from %s in %s on; their segment is kept, other tables go on: %s",
                position,
                entry.file,
                reason,
            )
        self._parts.health.count(parked=1)

    def _tell(self) -> None:
        """Keep the files, and say so."""
        self._capture.keep(self._state.segments)
        health, mutations = self._parts.health, self._state.mutations
        health.gauge(parked_now=mutations)
        if not mutations:
            health.recover("parked")
            return
        reasons = sorted({lot.reason for lot in self._state.lots})
        other_reasons = f" (and {len(reasons) - 1} other reasons)" if len(reasons) > 1 else ""
        health.degrade(
            "parked",
            f"{mutations} mutations wait in {len(self._state.segments)} segments, which are kept: "
            f"{reasons[0]}{other_reasons}. `tailrace parked list` shows them",
        )
