"""Mutations that cannot be published: set aside and retried, told of in dead letters, published by hand.

A mutation is parked whole, and published whole when it can be: with `origin = parked`, behind what came later. Those
that wait for a table are published before any later change of that table.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final
from uuid import UUID

from tailrace.agent.limits import Limits
from tailrace.agent.ports import Capture, Environment, Publisher, Routing
from tailrace.agent.translation import Outgoing, Translation
from tailrace.changes.transcode import Message
from tailrace.commitlog.frames import Entry
from tailrace.errors import HeldError, TooLargeError, UnexplainedError, UnknownTableError
from tailrace.publish.record import size_of
from tailrace.publish.reports import DeadLetter, dead_letter, encode_letter, letter_key, payload_records
from tailrace.schema.live import Known
from tailrace.state import Parked, ParkingLot, Resume
from tailrace_common.backoff import Backoff
from tailrace_common.kafka import Pace
from tailrace_schemas.errors import DecodeError

_LOG: Final = logging.getLogger("tailrace.agent")
_CHANGES_AT_ONCE: Final = 5000


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
        self, environment: Environment, limits: Limits, capture: Capture, translation: Translation, lot: ParkingLot
    ) -> None:
        self._environment = environment
        self._limits = limits
        self._capture = capture
        self._translation = translation
        self._lot = lot
        self._backoff = Backoff(limits.waits)
        self._next = float("-inf")
        self._begun = False
        self._urgent: set[str] = set()
        self._learned = 0
        self._tried: dict[UUID, Known] = {}  # what was known of a table when those that wait for it were tried last
        self._lost: dict[Parked, tuple[int, ...]] = {}
        self.show()

    def park(self, entry: Entry, error: UnexplainedError | HeldError) -> bool:
        """Set a mutation aside; False where that cannot be, as there are too many."""
        if error.table_id is None or self._lot.full:
            return False
        if not self._lot.waiting:
            self._backoff.reset()
            self._next = self._environment.clock() + self._backoff.next()
        self._put(entry, error.table_id, str(error))
        if isinstance(error, TooLargeError):
            self._urgent.add(str(error))  # waiting alone does not help
        self.show()
        return True

    # -- trying again

    def retry(self, changed: bool) -> Iterator[Unparked]:
        """The mutations that can be published by now; to be iterated over to the end. Raises ServiceError.

        All are tried where the schema has `changed`, and at the start of the session. From time to time, after a look
        at the cluster's schema, those of tables are tried of which some are in no dead letter yet. What is new of a
        table that others wait for counts as a change, whoever read it.
        """
        changed, self._begun = changed or not self._begun, True
        if not self._lot.lots:
            return
        due = self._lot.waiting and self._environment.clock() >= self._next
        if due and not changed:
            self._translation.learn()
        self._learned = self._translation.learned
        changed |= self._has_news()
        if changed:
            self._backoff.reset()
            yield from self._attempt(self._lot.lots)
        elif due:
            # What dead letters told of goes too where its table can: it was written before.
            waiting = {lot.table for lot in self._lot.lots if not lot.dead}
            yield from self._attempt(lot for lot in self._lot.lots if lot.table in waiting)
        if changed or due:
            self._next = self._environment.clock() + self._backoff.next()

    def retry_explained(self) -> Iterator[Unparked]:
        """The mutations of tables that are defined by now, where the schema was read for another mutation.

        They go before later changes of these tables.
        """
        if self._translation.learned > self._learned:
            self._learned = self._translation.learned
            history = self._environment.schema.history
            yield from self._attempt(lot for lot in self._lot.lots if history.newest(lot.table) is not None)
            self.show()

    def _attempt(self, lots: Iterable[Parked]) -> Iterator[Unparked]:
        tried = tuple(lots)
        self._tried |= {lot.table: self._environment.schema.known(lot.table) for lot in tried}
        blocked = {table for table in {lot.table for lot in tried} if not self._may_go(table)}
        free = [lot for lot in tried if lot.table not in blocked]
        for entry, lot in reread(self._capture, free, self._lost):
            if lot.table not in blocked and (outgoing := self._translated(entry, lot, blocked)) is not None:
                yield Unparked(entry, lot, outgoing)

    def _has_news(self) -> bool:
        """Whether more is known of a table that mutations wait for than when they were tried last."""
        schema = self._environment.schema
        return any(schema.known(table) != self._tried.get(table) for table in {lot.table for lot in self._lot.lots})

    def _may_go(self, table: UUID) -> bool:
        """Whether what waits for a table has a chance."""
        newest = self._environment.schema.history.newest(table)
        if newest is None:
            return False
        try:
            self._environment.routing.open(newest)
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
        self._environment.health.count(unparked=1)

    # -- giving up

    def take_lost(self) -> dict[Parked, tuple[int, ...]]:
        """The mutations that retries since the last call could no longer read: their ends, by lot."""
        lost, self._lost = self._lost, {}
        return lost

    def overdue(self) -> list[Parked]:
        """The lots that dead letters are to report, as they have waited for too long."""
        now, longest = self._environment.milliseconds(), self._limits.parked_seconds * 1000
        lots = (lot for lot in self._lot.lots if not lot.dead)
        return [lot for lot in lots if now - lot.since >= longest or lot.reason in self._urgent]

    def reported(self, lot: Parked) -> None:
        """Its dead letter is in the open transaction; its segment stays."""
        self._lot.bury(lot)
        self._environment.health.count(dead_letters=1)
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
        if self._environment.health.degrade(f"lost {lot.segment}", words):
            _LOG.error("%s", words)
        self._environment.health.count(lost_parked=len(offsets))
        self._lot.remove(lot, offsets)

    # -- what is parked

    def _put(self, entry: Entry, table: UUID, reason: str) -> None:
        position = entry.position
        # Before the checksum is looked up: a segment that Cassandra has deleted gets a file again.
        self._capture.keep(self._lot.segments | {position.segment})
        self._tried.setdefault(table, self._environment.schema.known(table))
        checksum = dict(self._capture.open_segments()).get(position.segment, 0)
        if self._lot.park(position, checksum, table, self._environment.milliseconds(), reason):
            _LOG.error(
                "parked mutations from %s in %s on; their segment is kept, other tables go on: %s",
                position,
                entry.file,
                reason,
            )
        self._environment.health.count(parked=1)

    def show(self) -> None:
        """Retain the segments of all parked mutations, and show them in health."""
        self._capture.keep(self._lot.segments)
        health, mutations = self._environment.health, self._lot.mutations
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


@dataclass(frozen=True, slots=True)
class Report:
    """Keys and values for `.dead-letter`, to be read once, and the ends of mutations that are lost."""

    records: Iterator[tuple[bytes, bytes]]
    lost: tuple[int, ...]


class DeadLetters:
    """What was parked for too long, or is lost, as records of `.dead-letter`.

    Writes letters; with `limits.dead_letter_payloads` the mutations too.
    """

    def __init__(self, environment: Environment, limits: Limits, host: str, capture: Capture) -> None:
        self._environment = environment
        self._payloads = limits.dead_letter_payloads
        self._host = host
        self._capture = capture

    def of(self, lot: Parked) -> Report:
        """The report of a lot, whose segment is read for it. Raises ServiceError."""
        letter = dead_letter(lot, self._reread(lot))
        return Report(self._records(letter), letter.lost)

    def of_lost(self, lot: Parked, offsets: tuple[int, ...]) -> Report:
        """The report of mutations of a lot that can no longer be read."""
        letter = dead_letter(replace(lot, offsets=offsets), ())
        return Report(iter([self._record(letter)]), offsets)

    def _records(self, letter: DeadLetter) -> Iterator[tuple[bytes, bytes]]:
        yield self._record(letter)
        for entry in self._reread(letter.lot) if self._payloads else ():
            yield from payload_records(self._host, letter.lot, entry)

    def _record(self, letter: DeadLetter) -> tuple[bytes, bytes]:
        newest = self._environment.schema.history.newest(letter.lot.table)
        name = None if newest is None else str(newest)
        value = encode_letter(self._host, letter, name, self._environment.milliseconds())
        return letter_key(self._host, letter.lot), value

    def _reread(self, lot: Parked) -> Iterable[Entry]:
        return self._capture.reread(lot.epoch, lot.segment, lot.checksum, lot.offsets)


@dataclass(slots=True)
class ParkedCounts:
    """What came of it: mutations published with so many changes, those that wait on by reason, those that are gone."""

    mutations: int = 0
    changes: int = 0
    left: Counter[str] = field(default_factory=Counter)
    lost: int = 0


def publish_parked(
    publisher: Publisher,
    capture: Capture,
    routing: Routing,
    messages: Callable[[Entry], list[Message]],
    resume: Resume,
    chosen: Callable[[Parked], bool],
    pace: Pace,
) -> ParkedCounts:
    """Publish what can be of the lots that are `chosen`, in transactions that take it off the record at once.

    `resume` is the host's record as the publisher has started from it; the publisher goes by `pace`. What still nothing
    explains waits on; so does what is gone, for the agent to report. Raises ServiceError.
    """
    lot, counts, sent, sent_bytes = ParkingLot(resume.parked, 0), ParkedCounts(), 0, 0
    lots = [parked for parked in lot.lots if chosen(parked)]
    lost: dict[Parked, tuple[int, ...]] = {}
    for entry, parked in reread(capture, lots, lost):
        try:
            records = routing.records(messages(entry))
        except (UnknownTableError, HeldError, DecodeError) as error:
            counts.left[str(error)] += 1
            continue
        size, fits = size_of(records), publisher.fits(records)
        if sent and (sent >= _CHANGES_AT_ONCE or sent_bytes + size > pace.limit or not fits):
            publisher.commit(replace(resume, parked=lot.lots), ())
            sent = sent_bytes = 0
        if not sent and not (pace.suits(size) and fits):
            publisher.close()
            publisher.start()  # with transactions that may last as long as this one needs, and batches that fit
        publisher.send_all(records)
        lot.remove(parked, (entry.offset,))
        counts.mutations += 1
        counts.changes += len(records)
        sent, sent_bytes = sent + len(records), sent_bytes + size
    counts.lost = sum(map(len, lost.values()))
    if lot.changed:
        publisher.commit(replace(resume, parked=lot.lots), ())
    return counts


def reread(
    capture: Capture, lots: Iterable[Parked], missing: dict[Parked, tuple[int, ...]]
) -> Iterator[tuple[Entry, Parked]]:
    """The mutations of some lots once more, by position, each segment read once.

    At the end `missing` has the offsets of those that their segment no longer gives, by lot. Raises ServiceError.
    """
    for (epoch, segment, checksum), some in groupby(lots, lambda lot: (lot.epoch, lot.segment, lot.checksum)):
        waiting = {offset: lot for lot in some for offset in lot.offsets}
        for entry in capture.reread(epoch, segment, checksum, tuple(waiting)):
            yield entry, waiting.pop(entry.offset)
        for offset, lot in waiting.items():
            missing[lot] = (*missing.get(lot, ()), offset)
