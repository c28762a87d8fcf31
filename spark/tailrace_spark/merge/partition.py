"""Merges changes of one table with what is known of its partitions: what becomes of states, and of what is shown.

For stores that keep the state of a row as `stored_row` has it, and show a row as they like.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tailrace_schemas.change import Deletion, Op
from tailrace_schemas.errors import DecodeError
from tailrace_spark.batch.delivery import DeadLetter, Delivered
from tailrace_spark.merge.batch_changes import BatchChanges, RowChanges, gather
from tailrace_spark.merge.partition_head import PartitionHead, deletion_row, deletion_rows
from tailrace_spark.merge.row import covering, differs, merge_row, merge_state
from tailrace_spark.merge.state_keys import STATIC
from tailrace_spark.merge.stored_row import Encoded, RowKey, StateRow, Stored, state_row, stored_as
from tailrace_spark.rowstate.deletions import (
    NOTHING_DELETED,
    PartitionState,
    merge_partitions,
    truncate_deletions,
)
from tailrace_spark.rowstate.row import RowState, state_of

Shape = TypeVar("Shape")
"""What a store shows of a row."""
ShapeOut = TypeVar("ShapeOut", covariant=True)
Clustering = Sequence[bytes | None]
State = tuple[RowState, Clustering]
"""A row's state, and its clustering columns as they were written."""


@dataclass(frozen=True, slots=True)
class KnownRow:
    """A row as it is there."""

    stored: Encoded
    written_as: tuple[bytes | None, ...]
    next_expiry: int | None


@dataclass(frozen=True, slots=True)
class Known:
    """A partition as it is there: its head, and its rows by their clustering values."""

    deletions: PartitionState
    static: Stored | None
    static_expiry: int | None
    rows: Mapping[bytes, KnownRow]


NOTHING = Known(PartitionHead().deletions, None, None, {})
Kept = tuple[StateRow, Clustering | None]
"""A row to be put there, and its clustering columns."""


class Shows(Protocol[ShapeOut]):
    """What a store shows of a source table, by one definition of it."""

    @property
    def whole_partitions(self) -> bool:
        """Whether rows of a partition show what others of it say, so that all of them are made together."""

    def row(self, row_key: RowKey, state: State, at: int | None) -> ShapeOut | None:
        """What a row of a table without static columns shows; None: no row. Raises DecodeError."""

    def partition(
        self, key: bytes, static: RowState | None, rows: Iterable[tuple[bytes, State]], at: int | None
    ) -> Mapping[RowKey, ShapeOut]:
        """All rows that a partition shows, by their keys; one without rows has its static columns, under STATIC.

        Raises DecodeError.
        """


class Merged(Generic[Shape]):
    """What becomes of a table's rows: states put there and taken away, likewise what is shown; how many rows."""

    def __init__(self) -> None:
        self.kept: list[Kept] = []
        self.gone: list[RowKey] = []
        self.shown: dict[RowKey, Shape] = {}
        self.hidden: set[RowKey] = set()
        self.rows = 0


class Merge(Generic[Shape]):
    """Merges by one definition; `erased` is what a truncation took from the whole table, `at` now, in seconds."""

    def __init__(
        self,
        shown: Shows[Shape],
        erased: Deletion | None,
        at: int,
        *,
        everything: bool = False,
        anew: Collection[bytes] = (),
    ) -> None:
        """With `everything`, all rows are looked at, since `erased` may be new; of partitions `anew` likewise."""
        self._shown = shown
        self._erased = erased
        self._at = at
        self._everything = everything
        self._anew = anew

    def merge(self, known: Mapping[bytes, Known], found: BatchChanges) -> Merged[Shape]:
        """Merge what was gathered into partitions, all of those that it touches. Raises DecodeError as rendering does.

        Partitions of which nothing is said are looked at for what has expired.
        """
        merged = Merged[Shape]()
        rows: dict[bytes, dict[bytes, RowChanges]] = {key: {} for key in {*known, *found.deletions, *found.statics}}
        for (key, clustering), said in found.rows.items():
            rows.setdefault(key, {})[clustering] = said
        for key in sorted(rows):
            self._partition(key, known.get(key, NOTHING), found, rows[key], merged)
        return merged

    def _partition(
        self, key: bytes, known: Known, found: BatchChanges, said: Mapping[bytes, RowChanges], to: Merged[Shape]
    ) -> None:
        new = found.deletions.get(key, NOTHING_DELETED)
        deletions = truncate_deletions(merge_partitions(known.deletions, new), self._erased)
        deleted = deletions != known.deletions
        if deleted:
            self._keep_deletions(key, known.deletions, deletions, to)
            to.rows += key in found.deletions
        states: dict[bytes, State] = {}
        changed = set[bytes]()
        anew = deleted or self._everything or key in self._anew
        for clustering in sorted({*known.rows, *said} if anew else {*said, *self._due(known)}):
            state, encoded = self._row(clustering, known, said.get(clustering), deletions)
            states[clustering] = state
            if encoded is not None:
                changed.add(clustering)
                self._put((key, clustering), state[0], state[1], to, encoded)
        static, static_changed = self._static(key, known, found.statics.get(key), deletions, to)
        to.rows += len(changed) + static_changed
        if not self._shown.whole_partitions:
            for clustering in changed:
                row = self._shown.row((key, clustering), states[clustering], self._at)
                self._show((key, clustering), row, to)
        elif changed or static_changed or deleted or key in self._anew:
            self._show_all(key, known, static, states, to)

    def _show_all(
        self, key: bytes, known: Known, static: RowState | None, states: dict[bytes, State], to: Merged[Shape]
    ) -> None:
        for clustering, row in known.rows.items():
            if clustering not in states:
                states[clustering] = stored_as(*row.stored).state, row.written_as
        shown = self._shown.partition(key, static, states.items(), self._at)
        to.shown.update(shown)
        to.hidden.update({(key, at) for at in (*states, STATIC)} - shown.keys())

    def _due(self, known: Known) -> set[bytes]:
        """The rows that read otherwise by now."""
        return {at for at, row in known.rows.items() if row.next_expiry is not None and row.next_expiry <= self._at}

    def _row(
        self, clustering: bytes, known: Known, said: RowChanges | None, deletions: PartitionState
    ) -> tuple[State, bytes | None]:
        """The row's state now, and its bytes where it is another one than before."""
        stored = known.rows.get(clustering)
        floor = covering(deletions, clustering, self._erased)
        state, encoded = merge_row(None if stored is None else stored.stored, said, floor)
        if stored is None:
            return (state, () if said is None else said.clustering), encoded
        if encoded is None and stored.next_expiry is not None and stored.next_expiry <= self._at:
            encoded = stored.stored[0]
        return (state, stored.written_as), encoded

    def _static(
        self, key: bytes, known: Known, said: RowState | None, deletions: PartitionState, to: Merged[Shape]
    ) -> tuple[RowState | None, bool]:
        if known.static is None and said is None:
            return None, False
        state = merge_state(known.static, said, covering(deletions, STATIC, self._erased))
        due = known.static_expiry is not None and known.static_expiry <= self._at
        changed = due or differs(known.static, state)
        if changed:
            self._put((key, STATIC), state, None, to)
        return state, changed

    def _keep_deletions(self, key: bytes, before: PartitionState, after: PartitionState, to: Merged[Shape]) -> None:
        old, new = deletion_rows(before), deletion_rows(after)
        to.kept += [(deletion_row((key, at), part, self._at), None) for at, part in new.items() if old.get(at) != part]
        to.gone += [(key, at) for at in old if at not in new]

    def _put(
        self,
        row_key: RowKey,
        state: RowState,
        written_as: Sequence[bytes | None] | None,
        to: Merged[Shape],
        encoded: bytes | None = None,
    ) -> None:
        if state.empty:
            to.gone.append(row_key)
        else:
            to.kept.append((state_row(row_key, state, self._at, encoded), written_as))

    def _show(self, row_key: RowKey, row: Shape | None, to: Merged[Shape]) -> None:
        if row is None:
            to.hidden.add(row_key)
        else:
            to.shown[row_key] = row


def mergeable(changes: Iterable[Delivered], shown: Shows[object], refused: list[DeadLetter]) -> list[Delivered]:
    """The changes that can be merged and shown; the others are refused."""
    good = []
    for one in changes:
        try:
            gather([one])
            if one.change.op in (Op.INSERT, Op.UPDATE, Op.READ) and one.change.key is not None:
                state = state_of(one.change)
                if one.change.static:
                    shown.partition(one.change.key, state, [], None)
                else:
                    shown.row((one.change.key, b""), (state, one.change.clustering or ()), None)
        except DecodeError as error:
            refused.append(DeadLetter(one.record_id, str(error), one.message))
        else:
            good.append(one)
    return good
