"""Truncations of a table: which changes they took, by each host's log, and when a new one takes all that is stored.

TRUNCATE removes everything at a position of each node's log, whatever its write time
(ColumnFamilyStore.truncateBlocking). So a change is gone if its host truncated the table at or behind its position.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tailrace_schemas.change import TRUNCATED_LATE, Change, Deletion, Op, Origin, Source
from tailrace_schemas.pickling import pickled_by_fields
from tailrace_schemas.position import Position

EVERYTHING: Final = Deletion(2**63 - 1, 2**31 - 1)
"""The deletion of all that is stored, whatever its write time."""
_MICROS: Final = 1_000_000
_MILLIS: Final = 1_000
_MOST_STATEMENTS: Final = 64


@dataclass(frozen=True, slots=True)
class Truncation:
    """One host's record of a truncation: `written`, its truncated_at, in microseconds.

    The table's data up to `upto` of the host's log went; None: unknown. `late`: changes of the
    table behind `upto` may stand before this record in the topic.
    """

    table_id: UUID
    host: str
    written: int
    upto: Position | None = None
    late: bool = False


@dataclass(frozen=True, slots=True)
class HostTruncation:
    """The newest truncation of a host, and the TRUNCATE statement that it belongs to, by that one's first time."""

    host: str
    written: int
    upto: Position | None
    statement: int


@dataclass(frozen=True, slots=True)
class TruncationState:
    """What is known of one table's truncations (one table id): the newest of each host, sorted by host.

    `statements` are the newest TRUNCATE statements, ascending, each by the time (microseconds) that the first host
    told of it.
    """

    # A statement reaches every host, since TRUNCATE fails where one is down (StorageProxy.truncateBlocking). In each
    # partition of the topic a host's record stands before its changes behind the truncation. So what was stored before
    # the first record of a statement came is gone as a whole, and needs no position.

    latest: tuple[HostTruncation, ...] = ()
    statements: tuple[int, ...] = ()

    def covers(self, change: Change, ring_delay: float) -> bool:
        """Whether a truncation took a change; False for a change without a source.

        A row that was read (`read`) is gone where it was asked for before the newest statement. So it is up to
        `ring_delay` seconds after it, as clocks differ. What was written since then comes by the log.
        A host may not have told of the newest statement yet. Its changes count as older, with two exceptions. The node
        may have started after the statement. Or the change was written more than `ring_delay` seconds after it, and
        not for the future. So nothing is lost of a node on which TRUNCATE failed.
        """
        source = change.source
        if not self.statements or source is None:
            return False
        if source.origin is Origin.SNAPSHOT or change.op is Op.READ:
            # SELECT shows what was there at some time from the request on; a truncation ends before it is answered.
            return 0 < source.seen * _MILLIS <= self.statements[-1] + int(ring_delay * _MICROS)
        newest = self._of(source.host)
        if newest is not None:
            if newest.upto is None:
                if change_time(change) <= newest.written:
                    return True
            elif source.position <= newest.upto:
                return True
            if newest.statement == self.statements[-1]:
                return False
        return not _follows(change, source, self.statements[-1], int(ring_delay * _MICROS))

    def _of(self, host: str) -> HostTruncation | None:
        for truncation in self.latest:
            if truncation.host == host:
                return truncation
        return None


pickled_by_fields(HostTruncation, TruncationState)


def absorb(
    state: TruncationState, truncations: Iterable[Truncation], ring_delay: float
) -> tuple[TruncationState, Deletion | None]:
    """The state with further truncations, and what they erase of all that was stored so far; None: nothing more.

    Each host's truncations must come in the order of its log; of those that come again nothing changes. Those of
    several hosts belong to one statement where their times are within `ring_delay` seconds of its first.
    """
    erased: Deletion | None = None
    for truncation in _by_time(truncations):
        state, opens = _absorb(state, truncation, int(ring_delay * _MICROS))
        if not opens:
            continue
        if truncation.upto is not None and not truncation.late:
            erased = EVERYTHING
        elif erased is not EVERYTHING:
            # Some of what was stored may have been written after the truncation: its write time decides.
            erased = Deletion(truncation.written, truncation.written // _MICROS)
    return state, erased


def truncation_of(change: Change) -> Truncation:
    """The truncation that a change records. Raises ValueError for another change, and for one without a source."""
    if change.op is not Op.TRUNCATE or change.deletion is None or change.source is None:
        raise ValueError(f"{change.table}: {change.op.value} is no truncation with a time and a source")
    source, late = change.source, bool(change.source.flags & TRUNCATED_LATE)
    return Truncation(change.table.id, source.host, change.deletion.written, change.upto, late)


def change_time(change: Change) -> int:
    """The newest write time of a change's marker, deletions and cells, in microseconds."""
    times = [cell.written for cell in change.cells]
    times += [deleted.deletion.written for deleted in change.column_deletions]
    if change.marker is not None:
        times.append(change.marker.written)
    if change.deletion is not None:
        times.append(change.deletion.written)
    return max(times, default=0)


def _follows(change: Change, source: Source, statement: int, delay: int) -> bool:
    """Whether a change of a host that has not told of a statement is known to be behind it."""
    # A segment's id is at least the milliseconds at which its node started (CommitLogSegment.idBase), and grows by one.
    if source.position.segment * _MILLIS > statement:
        return True
    written = change_time(change)
    return statement + delay < written and (not source.seen or written <= source.seen * _MILLIS + delay)


def _absorb(state: TruncationState, truncation: Truncation, delay: int) -> tuple[TruncationState, bool]:
    previous = next((stored for stored in state.latest if stored.host == truncation.host), None)
    if previous is not None and not _is_newer(truncation, previous):
        return state, False
    statement = _statement_of(state, truncation, previous, delay)
    opens = False
    if statement is None:
        # Later than the host's last one, also where its clock was set back.
        statement = truncation.written if previous is None else max(truncation.written, previous.statement + 1)
        opens = not state.statements or statement > state.statements[-1]
    statements = state.statements
    if statement not in statements:
        statements = tuple(sorted([*statements, statement])[-_MOST_STATEMENTS:])
    newest = HostTruncation(truncation.host, truncation.written, truncation.upto, statement)
    of_hosts = [newest if stored.host == truncation.host else stored for stored in state.latest]
    if previous is None:
        of_hosts.append(newest)
    return TruncationState(tuple(sorted(of_hosts, key=_host)), statements), opens


def _statement_of(
    state: TruncationState, truncation: Truncation, previous: HostTruncation | None, delay: int
) -> int | None:
    """The known statement that a host's next truncation belongs to; None: one of which nobody has told."""
    # The earliest that this host has not told of: each host tells of all, in their order.
    for statement in state.statements:
        if (previous is None or statement > previous.statement) and abs(truncation.written - statement) <= delay:
            return statement
    # A host that missed one may have taken the next for it: then this truncation is nearer to that statement.
    is_last = previous is not None and state.statements[-1:] == (previous.statement,)
    if (
        previous is not None
        and is_last
        and abs(truncation.written - previous.statement) < abs(previous.written - previous.statement)
    ):
        return previous.statement
    return None


def _is_newer(truncation: Truncation, knprevious: HostTruncation) -> bool:
    if truncation.upto is None or knprevious.upto is None:
        return truncation.written > knprevious.written
    return (truncation.upto, truncation.written) > (knprevious.upto, knprevious.written)


def _by_time(truncations: Iterable[Truncation]) -> list[Truncation]:
    """By time, and those of each host in their order, even where its clock was set back."""
    newest: dict[str, int] = {}
    timed: list[tuple[int, str, int, Truncation]] = []
    for index, truncation in enumerate(truncations):
        newest[truncation.host] = max(truncation.written, newest.get(truncation.host, truncation.written))
        timed.append((newest[truncation.host], truncation.host, index, truncation))
    return [truncation for *_, truncation in sorted(timed, key=_without_truncation)]


def _without_truncation(timed: tuple[int, str, int, Truncation]) -> tuple[int, str, int]:
    return timed[0], timed[1], timed[2]


def _host(truncation: HostTruncation) -> str:
    return truncation.host
