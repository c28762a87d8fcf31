"""Parking: mutations without a definition, or with refused changes, are set aside and retried.

A mutation is parked whole, and published whole when it can be: with `origin = parked`, behind what came later. Those
that wait for a table are published before any later change of that table.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tailrace.agent.parts import Capture, Limits, Parts, reread
from tailrace.agent.translation import Outgoing, Translation
from tailrace.commitlog.entry import Entry
from tailrace.errors import HeldError, TooLargeError, UnexplainedError
from tailrace.state.parked import Parked, ParkingLot
from tailrace_common.backoff import Backoff
from tailrace_schemas.errors import DecodeError

_LOG: Final = logging.getLogger("tailrace.agent")


@dataclass(frozen=True, slots=True)
class Unparked:
    """A parked mutation that can be published now, and its lot."""

    entry: Entry
    lot: Parked
    outgoing: Outgoing


class Parking:
    """The parked mutations of one session: which are parked, when they are retried, and which are overdue.

    It sends nothing itself. Whoever iterates over a retry sends each mutation, and says so by `published` before the
    next one.
    """

    def __init__(
        self, parts: Parts, limits: Limits, capture: Capture, translation: Translation, lot: ParkingLot
    ) -> None:
        self._parts = parts
        self._limits = limits
        self._capture = capture
        self._translation = translation
        self._lot = lot
        self._backoff = Backoff(limits.waits)
        self._next = float("-inf")
        self._begun = False
        self._urgent: set[str] = set()
        self._lost: dict[Parked, tuple[int, ...]] = {}
        self.show()

    def park(self, entry: Entry, error: UnexplainedError | HeldError) -> bool:
        """Set a mutation aside; False where that cannot be, as there are too many."""
        if error.table_id is None or self._lot.full:
            return False
        if not self._lot.waiting:
            self._backoff.reset()
            self._next = self._parts.clock() + self._backoff.next()
        self._put(entry, error.table_id, str(error))
        if isinstance(error, TooLargeError):
            self._urgent.add(str(error))  # waiting alone does not help
        self.show()
        return True

    # -- trying again

    def retry(self, changed: bool) -> Iterator[Unparked]:
        """The mutations that can be published by now; to be iterated over to the end. Raises ServiceError.

        All are tried where the schema has `changed`, and at the start of the session. Those that are in no dead letter
        yet are also tried from time to time, after a look at the cluster's schema.
        """
        changed, self._begun = changed or not self._begun, True
        if not self._lot.lots:
            return
        due = self._lot.waiting and self._parts.clock() >= self._next
        if changed:
            self._backoff.reset()
            yield from self._attempt(self._lot.lots)
        elif due:
            self._translation.learn()
            yield from self._attempt(lot for lot in self._lot.lots if not lot.dead)
        if changed or due:
            self._next = self._parts.clock() + self._backoff.next()

    def retry_explained(self) -> Iterator[Unparked]:
        """The mutations of tables that are defined by now, as the schema was read for another mutation.

        They go before later changes of these tables.
        """
        history = self._parts.schema.history
        return self._attempt(lot for lot in self._lot.lots if history.newest(lot.table) is not None)

    def _attempt(self, lots: Iterable[Parked]) -> Iterator[Unparked]:
        tried = tuple(lots)
        blocked = {table for table in {lot.table for lot in tried} if not self._may_go(table)}
        free = [lot for lot in tried if lot.table not in blocked]
        for entry, lot in reread(self._capture, free, self._lost):
            if lot.table not in blocked and (outgoing := self._translated(entry, lot, blocked)) is not None:
                yield Unparked(entry, lot, outgoing)

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

    def _translated(self, entry: Entry, lot: Parked, blocked: set[UUID]) -> Outgoing | None:
        """The records of a mutation; a table that still cannot be published is added to those that are blocked."""
        try:
            return self._translation.parked_records(entry)
        except TooLargeError:
            pass
        except (UnexplainedError, HeldError) as error:
            if error.table_id in (None, lot.table):
                blocked.add(lot.table)
            elif error.table_id is not None:  # its own table came, and now it waits for another
                self._lot.remove(lot, (entry.position.offset,))
                self._put(entry, error.table_id, str(error))
        except DecodeError as error:
            _LOG.warning(
                "the mutation at %s in %s stays parked, as it cannot be decoded: %s", entry.position, entry.file, error
            )
        return None

    def published(self, mutation: Unparked) -> None:
        """It is in the open transaction."""
        self._lot.remove(mutation.lot, (mutation.entry.position.offset,))
        self._parts.health.count(unparked=1)

    # -- giving up

    def take_lost(self) -> dict[Parked, tuple[int, ...]]:
        """The mutations that retries since the last call could no longer read: their ends, by lot."""
        lost, self._lost = self._lost, {}
        return lost

    def overdue(self) -> list[Parked]:
        """The lots that dead letters are to report, as they have waited for too long."""
        now, longest = self._parts.milliseconds(), self._limits.parked_seconds * 1000
        lots = (lot for lot in self._lot.lots if not lot.dead)
        return [lot for lot in lots if now - lot.since >= longest or lot.reason in self._urgent]

    def reported(self, lot: Parked) -> None:
        """Its dead letter is in the open transaction; its segment stays."""
        self._lot.bury(lot)
        self._parts.health.count(dead_letters=1)
        _LOG.error(
            "%d mutations of segment %d, parked since %d, are reported as a dead letter and stay parked: %s",
            *(len(lot.offsets), lot.segment, lot.since, lot.reason),
        )

    def lose(self, lot: Parked, offsets: tuple[int, ...]) -> None:
        """Remove mutations of a lot that can no longer be read."""
        words = (
            f"{len(offsets)} parked mutations of segment {lot.segment} are lost: its file is gone or can no longer be "
            f"read. They waited because {lot.reason}"
        )
        if self._parts.health.degrade(f"lost {lot.segment}", words):
            _LOG.error("%s", words)
        self._parts.health.count(lost_parked=len(offsets))
        self._lot.remove(lot, offsets)

    # -- what is parked

    def _put(self, entry: Entry, table: UUID, reason: str) -> None:
        position = entry.position
        checksum = dict(self._capture.open_segments()).get(position.segment, 0)
        if self._lot.park(position, checksum, table, self._parts.milliseconds(), reason):
            _LOG.error(
                "parked mutations from %s in %s on; their segment is kept, other tables go on: %s",
                position,
                entry.file,
                reason,
            )
        self._parts.health.count(parked=1)

    def show(self) -> None:
        """Retain the segments of all parked mutations, and show them in health."""
        self._capture.keep(self._lot.segments)
        health, mutations = self._parts.health, self._lot.mutations
        health.gauge(parked_now=mutations)
        if not mutations:
            health.recover("parked")
            return
        reasons = sorted({lot.reason for lot in self._lot.lots})
        other_reasons = f" (and {len(reasons) - 1} other reasons)" if len(reasons) > 1 else ""
        health.degrade(
            "parked",
            f"{mutations} mutations wait in {len(self._lot.segments)} segments, which are kept: "
            f"{reasons[0]}{other_reasons}. `tailrace parked list` shows them",
        )
