"""Truncations: what a node says of them in `system.local`, in the log or in a read, and which are still to be told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol
from uuid import UUID

from tailrace.commitlog.model import Mutation, Row
from tailrace.history.objects import epoch_of
from tailrace.position import Position
from tailrace.state.truncation import Newest, Truncation

_COLUMN: Final = "truncated_at"


def truncation_of(table_id: UUID, value: bytes, position: Position, *, inferred: bool = False) -> Truncation | None:
    """The truncation of an entry of `truncated_at`: segment (8 bytes), offset (4), milliseconds (8); None for bytes
    that are none (SystemKeyspace.truncationAsMapEntry)."""
    if len(value) != 20:
        return None
    segment, offset, at = (int.from_bytes(value[a:b], "big", signed=True) for a, b in ((0, 8), (8, 12), (12, 20)))
    return Truncation(position, table_id, at, (segment, offset), inferred)


def truncations_in(mutation: Mutation, position: Position) -> Iterator[Truncation]:
    """The truncations that a mutation of `system.local` tells of. DROP takes entries away, which tells nothing."""
    for update in mutation.updates:
        for row in update.items:
            if not isinstance(row, Row):
                continue
            for cell in row.cells:
                if cell.column.name == _COLUMN and cell.value is not None and len(cell.path or b"") == 16:
                    found = truncation_of(UUID(bytes=cell.path), cell.value, position)
                    if found is not None:
                        yield found


def metadata_epoch(mutation: Mutation) -> int | None:
    """The epoch of the cluster's metadata that a mutation of `system.local` says the node is at; None for other ones,
    and before Cassandra 6, where a schema version is a hash."""
    cells = (cell for update in mutation.updates for row in update.items if isinstance(row, Row) for cell in row.cells)
    versions = [cell.value for cell in cells if cell.column.name == "schema_version" and cell.value is not None]
    return epoch_of(UUID(bytes=versions[-1])) if versions and len(versions[-1]) == 16 else None


class Record(Protocol):
    """What the offsets record says of truncations; see state.resume.Resume."""

    @property
    def schema(self) -> Position | None: ...

    @property
    def truncations(self) -> tuple[Truncation, ...]: ...

    @property
    def truncated(self) -> tuple[Newest, ...] | None: ...


@dataclass(slots=True)
class Truncations:
    """Those that are read and not yet published, in position order, and the newest that is known of each table.

    A session with Kafka begins with what its record says, and with what was read behind the place that it names.
    """

    newest: dict[UUID, tuple[int, bool]] | None = None
    """Milliseconds by table id, and whether it was inferred; None where nothing was ever asked."""
    pending: list[Truncation] = field(default_factory=list)
    _unconfirmed: list[Truncation] = field(default_factory=list)
    _seen: dict[Truncation, Position | None] = field(default_factory=dict)

    def begin(self, record: Record) -> None:
        """Go on from an offsets record."""
        if record.truncated is not None:
            self.newest = {table_id: (at, inferred) for table_id, at, inferred in record.truncated} | (
                self.newest or {}
            )
        later = [one for one in self._unconfirmed if record.schema is None or one.position > record.schema]
        self.pending = sorted({*record.truncations, *later})
        self._seen = {one: self._seen.get(one, record.schema) for one in self.pending}
        self._unconfirmed = list(self.pending)

    def ask(self, read: Mapping[UUID, bytes]) -> None:
        """What the cluster says at first, of the time before our log; where that was asked before, it stays."""
        if self.newest is None:
            found = (truncation_of(id, value, Position(0, 0, 0)) for id, value in read.items())
            self.newest = {one.table_id: (one.at, False) for one in found if one is not None}

    def logged(self, found: Truncation) -> bool:
        """The log tells of one; whether it is news, and was not concluded from a read before."""
        newest = self.newest = self.newest or {}
        at, inferred = newest.get(found.table_id, (found.at, False))
        if inferred and found.at <= at:
            return False
        newest[found.table_id] = max(at, found.at), False
        return True

    def missed(self, read: Mapping[UUID, bytes], until: Position, written: int | None) -> list[Truncation]:
        """Those of a read of the cluster that must have stood in a hole of the log that ends at `until`: newer than
        what is known, older than what follows (microseconds; None: not known). They stand at the hole's end."""
        newest = self.newest = self.newest or {}
        news: list[Truncation] = []
        for table_id, value in sorted(read.items()):
            found = truncation_of(table_id, value, until, inferred=True)
            known = newest.get(table_id)
            if found is None or (known is not None and found.at <= known[0]):
                continue
            if written is None or found.written < written:
                newest[table_id] = found.at, True
                news.append(found)
        return news

    def add(self, one: Truncation, place: Position | None) -> None:
        """One to publish; the log was read for DDL up to `place` when it was found."""
        self.pending = sorted([*self.pending, one])
        self._unconfirmed.append(one)
        self._seen[one] = place

    def forget(self, table_id: UUID) -> None:
        """The table is gone."""
        if self.newest is not None:
            self.newest.pop(table_id, None)

    def settled(self, one: Truncation, place: Position | None) -> bool:
        """Whether the log went on behind the section in which it stands, so that its segment's index, if it was to get
        one for that section, has it; `place` is up to where it was read for DDL by now."""
        if one.inferred or place is None or place.segment > one.position.segment:
            return True
        seen = self._seen.get(one)
        return seen is None or place > seen

    def published(self, one: Truncation) -> None:
        """It is in the open transaction."""
        self.pending.remove(one)

    def sent(self) -> None:
        """The transaction is committed."""
        self._unconfirmed = list(self.pending)
        self._seen = {one: self._seen[one] for one in self.pending}

    def told(self) -> tuple[Newest, ...] | None:
        """`newest`, for the offsets record."""
        if self.newest is None:
            return None
        return tuple((id, at, inferred) for id, (at, inferred) in sorted(self.newest.items()))
