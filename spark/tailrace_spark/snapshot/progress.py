"""How far the snapshots of a stream are: a value with a JSON form, which only these functions change. No I/O, no clock.

A snapshot of a table is read in rounds. A round is noted before it is read, and counts once it is written. So the same
ranges, under the same numbers, are read again after a crash. What is done is a set of tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Final, Self

from tailrace_schemas.errors import CorruptError
from tailrace_schemas.formats import require_format
from tailrace_spark.snapshot.ranges import WHOLE, Intervals, TokenRange, from_pairs, union, width, without

VERSION: Final = 1
FIRST_LEAST: Final = 32
_ENDED_SHOWN: Final = 100
_REQUESTS_NOTED: Final = 1000


class State(StrEnum):
    """What becomes of a table's snapshot. All from `done` on are ends."""

    PENDING = "pending"
    READING = "reading"
    PAUSED = "paused"
    DONE = "done"
    CANCELLED = "cancelled"
    DROPPED = "dropped"
    """The table is not there any more, or another one of its name is."""
    REFUSED = "refused"
    """The table cannot be read as changes, or Cassandra does not give its rows."""

    @property
    def ended(self) -> bool:
        """Whether nothing more comes of it."""
        return self not in (State.PENDING, State.READING, State.PAUSED)

    @property
    def due(self) -> bool:
        """Whether it is to be read now."""
        return self in (State.PENDING, State.READING)


@dataclass(frozen=True, slots=True)
class Round:
    """Ranges that are read at once. `number` counts the rounds of a snapshot; `slots` has each task's ranges."""

    number: int
    slots: tuple[Intervals, ...]

    @property
    def tokens(self) -> Intervals:
        """All of them."""
        return union(*self.slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSnapshot:
    """The snapshot of one table, or of a part of it. Times are seconds since the epoch.

    `within` are the tokens asked for, `where` a condition besides. `table_id` is that of the table that is read, once
    it begins. `seconds` is the time that rounds took. `least` is the least number of ranges of the ring (`ranges`).
    `log_ends` and `generation` are where the log was at the beginning.
    """

    id: str
    table: str
    asked: float
    origin: str = "initial"
    within: Intervals = WHOLE
    where: str | None = None
    state: State = State.PENDING
    reason: str = ""
    table_id: str | None = None
    done: Intervals = ()
    round: Round | None = None
    rounds: int = 0
    ranges: int = 0
    rows: int = 0
    octets: int = 0
    seconds: float = 0.0
    least: int = FIRST_LEAST
    began: float | None = None
    ended: float | None = None
    log_ends: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    generation: int | None = None

    @property
    def remaining(self) -> Intervals:
        """The tokens that are not read yet."""
        return without(self.within, self.done)

    @property
    def share(self) -> float:
        """The share of the tokens asked for that is done, 0 to 1."""
        if self.state is State.DONE:
            return 1.0
        return width(self.done) / width(self.within)

    def begun(self, table_id: str, now: float, log_ends: Mapping[str, Mapping[str, int]], generation: int) -> Self:
        """Its first range is about to be read."""
        return replace(
            self, state=State.READING, table_id=table_id, began=now, log_ends=log_ends, generation=generation
        )

    def planned(self, slots: Sequence[Intervals]) -> Self:
        """With the next round."""
        return replace(self, round=Round(self.rounds, tuple(slots)), rounds=self.rounds + 1)

    def written(self, rows: int, octets: int, seconds: float, least: int) -> Self:
        """The round is in the sink."""
        if self.round is None:
            raise ValueError(f"{self.table}: no round was planned")
        return replace(
            self,
            reason="",
            done=union(self.done, self.round.tokens),
            round=None,
            ranges=self.ranges + len(self.round.slots),
            rows=self.rows + rows,
            octets=self.octets + octets,
            seconds=self.seconds + seconds,
            least=least,
        )

    def over(self, state: State, now: float, reason: str = "") -> Self:
        """It has ended."""
        return replace(self, state=state, ended=now, reason=reason, round=None)

    def paused(self) -> Self:
        """It waits to be resumed; a round that is noted is read first then."""
        return replace(self, state=State.PAUSED)

    def resumed(self) -> Self:
        """It goes on."""
        return replace(self, state=State.PENDING if self.began is None else State.READING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What somebody asks of a stream: to start a snapshot of a table, or to pause, resume or cancel those it has."""

    id: str
    action: str
    table: str
    asked: float
    within: Intervals = WHOLE
    where: str | None = None

    def to_json(self) -> str:
        """As `request_from_json` reads it."""
        return _to_json(self)


def request_from_json(text: str) -> Request:
    """The request of a text. Raises CorruptError for what `Request.to_json` of this version did not write."""
    try:
        members = _members(text)
        if members["action"] not in ("start", "pause", "resume", "cancel"):
            raise ValueError(f"no action {members['action']!r}")
        return Request(**{**members, "within": from_pairs(members["within"])})
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptError(f"a request for a snapshot cannot be read: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshots:
    """All snapshots of a stream, in the order in which they are read. `sequence` grows with each note.

    `copies`: whether the stream copies the rows that its tables have. `initial`: whether the snapshots for that are
    among them. `applied` are the newest requests, by id. `read_before` are tables of snapshots that are forgotten.
    """

    sequence: int = 0
    copies: bool = False
    initial: bool = False
    tables: tuple[TableSnapshot, ...] = ()
    applied: tuple[str, ...] = ()
    read_before: tuple[str, ...] = ()

    @property
    def tables_read(self) -> frozenset[str]:
        """The tables, "keyspace.name", of which rows may have been read."""
        began = [snapshot.table for snapshot in self.tables if snapshot.began is not None]
        return frozenset([*self.read_before, *began])

    def current(self) -> TableSnapshot | None:
        """The one to go on with: the first that is to be read; None where all have ended or are paused."""
        return next((snapshot for snapshot in self.tables if snapshot.state.due), None)

    def find(self, snapshot_id: str) -> TableSnapshot:
        """The snapshot of an id, as it is now. Raises KeyError."""
        return {snapshot.id: snapshot for snapshot in self.tables}[snapshot_id]

    def waiting(self, snapshot_id: str, reason: str) -> Self:
        """With a snapshot that could not be read for a reason that may pass: those behind it are read first."""
        waiting = replace(self.find(snapshot_id), reason=reason)
        remaining = [snapshot for snapshot in self.tables if snapshot.id != snapshot_id]
        return replace(self, tables=(*remaining, waiting))

    @property
    def active(self) -> bool:
        """Whether one has not ended."""
        return any(not snapshot.state.ended for snapshot in self.tables)

    @property
    def unplanned(self) -> bool:
        """Whether the snapshots of the stream's tables are still to be added."""
        return self.copies and not self.initial

    def put(self, snapshot: TableSnapshot) -> Self:
        """With a snapshot as it is now, in place of the one of its id."""
        tables = tuple([snapshot if earlier.id == snapshot.id else earlier for earlier in self.tables])
        return replace(self, tables=tables)

    def added(self, *snapshots: TableSnapshot) -> Self:
        """With more snapshots, behind the others. Those that ended long ago are forgotten."""
        ended = [snapshot for snapshot in self.tables if snapshot.state.ended]
        forgotten = {snapshot.id for snapshot in ended[:-_ENDED_SHOWN]}
        tables = tuple([snapshot for snapshot in self.tables if snapshot.id not in forgotten])
        return replace(self, tables=(*tables, *snapshots), read_before=tuple(sorted(self.tables_read)))

    def with_initial(self, tables: Sequence[str], new_id: Callable[[], str], now: float) -> Self:
        """With a snapshot of each of the stream's tables, "keyspace.name"."""
        added = self.added(*[TableSnapshot(id=new_id(), table=table, asked=now) for table in tables])
        return replace(added, initial=True)

    def take(self, request: Request, now: float) -> Self:
        """After a request; one that was taken before changes nothing. A table without snapshots is passed over."""
        if request.id in self.applied:
            return self
        changed = replace(self, applied=(*self.applied, request.id)[-_REQUESTS_NOTED:])
        if request.action == "start":
            snapshot = TableSnapshot(
                id=request.id,
                table=request.table,
                asked=request.asked,
                origin="command",
                within=request.within,
                where=request.where,
            )
            return changed.added(snapshot)
        for snapshot in self.tables:
            if snapshot.table == request.table and not snapshot.state.ended:
                changed = changed.put(_asked_for(snapshot, request.action, now))
        return changed

    def to_json(self) -> str:
        """As `snapshots_from_json` reads it."""
        return _to_json(self)


def snapshots_from_json(text: str) -> Snapshots:
    """The value of a text. Raises CorruptError for what this version did not write."""
    try:
        members = _members(text)
        tables = tuple([_table_from_json(table) for table in members["tables"]])
        applied, read_before = tuple(members["applied"]), tuple(members["read_before"])
        return Snapshots(**{**members, "tables": tables, "applied": applied, "read_before": read_before})
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptError(f"the note of a stream's snapshots cannot be read: {error}") from error


def status_row(snapshot: TableSnapshot) -> dict[str, object]:
    """What people are shown of it; `seconds_left` is the time that the rest takes, where it is as the rest before."""
    share, seconds = snapshot.share, snapshot.seconds
    is_timed = snapshot.state is State.READING and share and seconds
    return {
        "table": snapshot.table,
        "id": snapshot.id,
        "state": str(snapshot.state),
        "percent": round(100 * share, 1),
        "ranges": snapshot.ranges,
        "rows": snapshot.rows,
        "bytes": snapshot.octets,
        "rows_per_second": round(snapshot.rows / seconds, 1) if seconds else None,
        "seconds_left": round(seconds * (1 - share) / share) if is_timed else None,
        "origin": snapshot.origin,
        "where": snapshot.where,
        "reason": snapshot.reason or None,
    }


def _asked_for(snapshot: TableSnapshot, action: str, now: float) -> TableSnapshot:
    match action:
        case "pause":
            return snapshot.paused()
        case "resume":
            return snapshot.resumed() if snapshot.state is State.PAUSED else snapshot
        case _:
            return snapshot.over(State.CANCELLED, now, "cancelled by a command")


def _to_json(value: Request | Snapshots) -> str:
    return json.dumps({"version": VERSION, **_plain(value)}, default=_plain)


def _plain(value: Any) -> Any:
    """What `json` does not know: a range as a pair, any other of our values by the names of its members."""
    if isinstance(value, TokenRange):
        return [value.start, value.end]
    return {member.name: getattr(value, member.name) for member in fields(value)}


def _members(text: str) -> dict[str, Any]:
    members: dict[str, Any] = json.loads(text)
    require_format("it", members.pop("version"), VERSION, error=ValueError)
    return members


def _table_from_json(members: Mapping[str, Any]) -> TableSnapshot:
    noted = members["round"]
    return TableSnapshot(
        **{
            **members,
            "state": State(members["state"]),
            "within": from_pairs(members["within"]),
            "done": from_pairs(members["done"]),
            "round": None if noted is None else Round(noted["number"], tuple(map(from_pairs, noted["slots"]))),
        }
    )
