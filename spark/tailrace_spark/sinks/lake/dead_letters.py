"""Dead letters in a lake: read back from their table, and written again into a history or a table that follows.

A Delta table is committed by itself, so a change goes into its table first and its letter goes behind that. What a
crash leaves between is found when the letter is tried again. A history has the record id of each of its changes, and
in a current table merging a change twice is as merging it once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import pyarrow as pa

from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_spark.batch.dead_letters import page
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, RecordId, RecordKey, Summary
from tailrace_spark.batch.task_batch import PartitionResult, TaskBatch
from tailrace_spark.sinks.changelog.replayable import ReplayableLogSink
from tailrace_spark.sinks.changelog.sink import Batch
from tailrace_spark.sinks.lake.current import LakeCurrent
from tailrace_spark.sinks.lake.history import HistoryBatch, LakeHistory
from tailrace_spark.sinks.lake.history_table import (
    DEAD_LETTERS,
    LETTERS,
    PLACE,
    REPLAYS,
    HistoryTable,
    letter_rows,
    replays,
)
from tailrace_spark.sinks.lake.history_task import HistoryPlans, HistoryTask
from tailrace_spark.sinks.lake.spool import Spool
from tailrace_spark.sinks.lake.store import Condition, LakeStore, LakeTable, Number
from tailrace_spark.sinks.protocol import Capabilities, ReachableSink

_NAMED_BY: Final = ("partition", "offset", "topic")
_TRIES: Final = 5


class LakeDeadLetters:
    """A DeadLetterReader over the table of that name."""

    def __init__(self, store: LakeStore) -> None:
        self._store = store

    def list(self, after: RecordId | None, limit: int) -> Sequence[DeadLetter]:
        stored = self._store.open(DEAD_LETTERS)
        if stored is None:
            return []
        keys = page(_keys(stored.read(PLACE, Number("offset").above(-1))), after, limit)
        if not keys:
            return []
        rows = stored.read(LETTERS.names, _within([RecordId(*key) for key in keys])).to_pylist()
        by_key = {(row["topic"], row["partition"], row["offset"]): row for row in rows}
        return [
            DeadLetter(RecordId(*key, bytes.fromhex(row["schema"] or "")), row["reason"], row["message"] or b"")
            for key in keys
            if (row := by_key.get(key)) is not None
        ]

    def replace(self, letters: Sequence[DeadLetter], set_aside: Mapping[RecordKey, DeadLetter]) -> None:
        """Remove `letters` but those that were set aside again, which get their new reasons, in one commit."""
        is_removed = [letter.record_id.key not in set_aside for letter in letters]
        rows = letter_rows([set_aside.get(letter.record_id.key, letter) for letter in letters])
        table = pa.Table.from_batches([rows]).append_column("gone", pa.array(is_removed, pa.bool_()))
        for tries_left in reversed(range(_TRIES)):
            stored = self._store.open(DEAD_LETTERS)
            if stored is None:
                return
            try:
                self._store.merge(DEAD_LETTERS, stored, table, _NAMED_BY, {})
            except ServiceError:  # a stream set something aside meanwhile
                if not tries_left:
                    raise
            else:
                return


class ReplayableHistory(LakeHistory):
    """As LakeHistory; its letters can be written again, while a stream writes."""

    def __init__(self, store: LakeStore) -> None:
        super().__init__(store)
        self._dead_letters = LakeDeadLetters(store)

    def dead_letters(self, after: RecordId | None, limit: int) -> Sequence[DeadLetter]:
        return self._dead_letters.list(after, limit)

    def begin_replay(self, letters: Sequence[DeadLetter]) -> Batch:
        """As ReplayableOutlet has it, a table at a time."""
        return _Replay(self, self.store, letters)


class LakeHistorySink(ReplayableLogSink):
    """As ReplayableLogSink, and a TaskSink: no attempt of a task is seen by anybody before its driver's commit."""

    def __init__(self, outlet: ReplayableHistory) -> None:
        super().__init__(outlet)
        self._history = outlet
        self._plans = HistoryPlans(outlet)

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, tasks=self)

    def fence(self, stream: str) -> None:
        """As TaskSink says: nothing that a task has staged counts, and no driver commits behind another's commit."""

    def plan(self, batch: TaskBatch, definitions: Sequence[tuple[int, Table]]) -> HistoryTask:
        """As TaskSink says."""
        del batch  # a table notes the offsets of what it has, and not the batch
        return self._plans.plan(table for _, table in definitions)

    def commit(self, batch: TaskBatch, results: Sequence[PartitionResult]) -> Summary:
        """As TaskSink says: one commit of each table."""
        del batch
        return self._plans.commit(results)


class ReplayableCurrent(LakeCurrent):
    """As LakeCurrent; its letters can be merged again, while a stream writes."""

    def __init__(
        self, store: LakeStore, buckets: int = 16, *, ring_delay: float = 0.0, merge_horizon: int | None = None
    ) -> None:
        super().__init__(store, buckets, ring_delay=ring_delay, merge_horizon=merge_horizon)
        self._dead_letters = LakeDeadLetters(store)

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, dead_letters=self)

    def dead_letters(self, after: RecordId | None, limit: int) -> Sequence[DeadLetter]:
        return self._dead_letters.list(after, limit)

    def replay(self, letters: Sequence[DeadLetter], pieces: Iterable[Piece]) -> Summary:
        """As DeadLetterSink has it: the changes first, then the letters go."""
        done, refused = self.merged(pieces)
        self._dead_letters.replace(letters, {letter.record_id.key: letter for letter in refused})
        return done


def lake_sink(
    store: LakeStore,
    mode: Literal["history", "current"],
    buckets: int,
    ring_delay: float,
    merge_horizon: int | None = None,
) -> ReachableSink:
    """What `tailrace stream` writes into a store: histories, or current tables. See LakeCurrent for the rest."""
    if mode == "current":
        return ReplayableCurrent(store, buckets, ring_delay=ring_delay, merge_horizon=merge_horizon)
    return LakeHistorySink(ReplayableHistory(store))


@dataclass(slots=True)
class _ReplayedTable(HistoryTable):
    """A table of a history that is given letters' changes: `there` are the places of those that it has."""

    there: set[RecordKey] = field(default_factory=set)

    def take(self, record_id: RecordId) -> bool:
        """Whether a record is not there yet."""
        new = record_id.key not in self.there
        if new:
            self.ends.move(record_id)
        return new

    @property
    def moved(self) -> dict[str, int]:
        """What is noted with the rows: one more replay, and how far replays came in each partition.

        The ends of partitions stay: what is before these places may be of a batch that is being written.
        """
        if not self.ends.moved:
            return {}
        noted = {replays(*partition): end for partition, end in self.ends.moved.items()}
        return {REPLAYS: self.noted(REPLAYS) + 1, **{name: max(end, self.noted(name)) for name, end in noted.items()}}


class _Replay(HistoryBatch):
    """The changes of some letters on their way into their tables."""

    def __init__(self, outlet: LakeHistory, store: LakeStore, letters: Sequence[DeadLetter]) -> None:
        super().__init__(outlet, store)
        self._dead_letters = LakeDeadLetters(store)
        self._replayed = letters
        self._set_aside: dict[RecordKey, DeadLetter] = {}

    def writing(self, name: str, stored: LakeTable | None, says: str, spool: Spool, by: str | None) -> HistoryTable:
        existing = set[RecordKey]()
        if stored is not None:
            rows = stored.read(PLACE, _within([letter.record_id for letter in self._replayed]))
            existing = set(_keys(rows))
        return _ReplayedTable(name, stored, says, spool, by, there=existing)

    def put_all(self, changes: Sequence[Delivered]) -> Sequence[Delivered]:
        """One by one: their places say which of them are there, not the ends of partitions."""
        return changes

    def set_aside(self, letter: DeadLetter) -> None:
        self._set_aside[letter.record_id.key] = letter

    def commit(self) -> Summary:
        done = super().commit()
        self._dead_letters.replace(self._replayed, self._set_aside)
        return replace(done, dead_letters=len(self._set_aside))


def _within(record_ids: Iterable[RecordId]) -> Condition:
    """What these places satisfy, and perhaps others."""
    return Number("offset").among(sorted({record_id.offset for record_id in record_ids}))


def _keys(table: Any) -> list[RecordKey]:
    return list(zip(*(table[name].to_pylist() for name in PLACE), strict=True))
