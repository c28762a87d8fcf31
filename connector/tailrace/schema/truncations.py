"""Truncations: what a node says of them in `system.local`, in the log or in a read, and which are still to be told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tailrace.commitlog.model import Mutation, Row
from tailrace.history.objects import metadata_epoch_of
from tailrace.state import Newest, Resume, Truncation
from tailrace_schemas.position import Position

_COLUMN: Final = "truncated_at"


def truncation_of(table_id: UUID, value: bytes, position: Position, *, inferred: bool = False) -> Truncation | None:
    """The truncation of an entry of `truncated_at`: segment (8 bytes), offset (4), milliseconds (8); None for bytes
    that are none (SystemKeyspace.truncationAsMapEntry)."""
    if len(value) != 20:
        return None
    segment, offset, milliseconds = (
        int.from_bytes(value[a:b], "big", signed=True) for a, b in ((0, 8), (8, 12), (12, 20))
    )
    return Truncation(position, table_id, milliseconds, (segment, offset), inferred)


def truncations_in(mutation: Mutation, position: Position) -> Iterator[Truncation]:
    """The truncations that a mutation of `system.local` tells of. DROP takes entries away, which tells nothing."""
    for update in mutation.updates:
        for row in update.items:
            if not isinstance(row, Row):
                continue
            for cell in row.cells:
                if cell.column.name == _COLUMN and cell.value is not None and len(cell.path or b"") == 16:
                    truncation = truncation_of(UUID(bytes=cell.path), cell.value, position)
                    if truncation is not None:
                        yield truncation


def metadata_epoch(mutation: Mutation) -> int | None:
    """The metadata epoch of the node, from a mutation of `system.local`; None for others.

    None also before Cassandra 6, where a schema version is a hash.
    """
    cells = (cell for update in mutation.updates for row in update.items if isinstance(row, Row) for cell in row.cells)
    versions = [cell.value for cell in cells if cell.column.name == "schema_version" and cell.value is not None]
    return metadata_epoch_of(UUID(bytes=versions[-1])) if versions and len(versions[-1]) == 16 else None


@dataclass(slots=True)
class Truncations:
    """Those that are read and not yet published, in position order, and the newest that is known of each table.

    A session with Kafka begins with what its record says, and with what was read behind the position that it names.
    """

    newest: dict[UUID, tuple[int, bool]] | None = None
    """Milliseconds by table id, and whether it was inferred; None where nothing was ever asked."""
    pending: list[Truncation] = field(default_factory=list)
    _unconfirmed: list[Truncation] = field(default_factory=list)
    _seen: dict[Truncation, Position | None] = field(default_factory=dict)

    def begin(self, record: Resume) -> None:
        """Go on from an offsets record."""
        if record.truncated is not None:
            self.newest = {
                table_id: (milliseconds, inferred) for table_id, milliseconds, inferred in record.truncated
            } | (self.newest or {})
        later = [
            truncation
            for truncation in self._unconfirmed
            if record.schema is None or truncation.position > record.schema
        ]
        self.pending = sorted({*record.truncations, *later})
        self._seen = {truncation: self._seen.get(truncation, record.schema) for truncation in self.pending}
        self._unconfirmed = list(self.pending)

    def ask(self, read: Mapping[UUID, bytes]) -> None:
        """What the cluster says at first, of the time before our log; where that was asked before, it stays."""
        if self.newest is None:
            truncations = (truncation_of(id, value, Position(0, 0, 0)) for id, value in read.items())
            self.newest = {
                truncation.table_id: (truncation.at, False) for truncation in truncations if truncation is not None
            }

    def logged(self, truncation: Truncation) -> bool:
        """The log tells of one; whether it is news, and was not concluded from a read before."""
        newest = self.newest = self.newest or {}
        newest_ms, inferred = newest.get(truncation.table_id, (truncation.at, False))
        if inferred and truncation.at <= newest_ms:
            return False
        newest[truncation.table_id] = max(newest_ms, truncation.at), False
        return True

    def missed(self, read: Mapping[UUID, bytes], until: Position, written: int | None) -> list[Truncation]:
        """The truncations of a cluster read that must have stood in a hole of the log; they get its end as position.

        They are newer than the newest known one, and older than `written`, the first write after the hole
        (microseconds; None: not known). `until` is the hole's end.
        """
        newest = self.newest = self.newest or {}
        news: list[Truncation] = []
        for table_id, value in sorted(read.items()):
            truncation = truncation_of(table_id, value, until, inferred=True)
            previous = newest.get(table_id)
            if truncation is None or (previous is not None and truncation.at <= previous[0]):
                continue
            if written is None or truncation.written < written:
                newest[table_id] = truncation.at, True
                news.append(truncation)
        return news

    def add(self, truncation: Truncation, read_up_to: Position | None) -> None:
        """One to publish; the log had been read for DDL up to a position when it was met."""
        self.pending = sorted([*self.pending, truncation])
        self._unconfirmed.append(truncation)
        self._seen[truncation] = read_up_to

    def forget(self, table_id: UUID) -> None:
        """The table is gone."""
        if self.newest is not None:
            self.newest.pop(table_id, None)

    def settled(self, truncation: Truncation, read_up_to: Position | None) -> bool:
        """Whether the log, read for DDL up to a position by now, went on behind the section of a truncation.

        Its segment's index has that section by then, if it was to get one for it.
        """
        if truncation.inferred or read_up_to is None or read_up_to.segment > truncation.position.segment:
            return True
        met_at = self._seen.get(truncation)
        return met_at is None or read_up_to > met_at

    def published(self, truncation: Truncation) -> None:
        """It is in the open transaction."""
        self.pending.remove(truncation)

    def sent(self) -> None:
        """The transaction is committed."""
        self._unconfirmed = list(self.pending)
        self._seen = {truncation: self._seen[truncation] for truncation in self.pending}

    def told(self) -> tuple[Newest, ...] | None:
        """`newest`, for the offsets record."""
        if self.newest is None:
            return None
        return tuple((id, milliseconds, inferred) for id, (milliseconds, inferred) in sorted(self.newest.items()))
