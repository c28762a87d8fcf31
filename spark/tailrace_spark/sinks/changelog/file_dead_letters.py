"""A change log whose dead letters are in a file: they can be read back, and sent again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tailrace_schemas.table import Table
from tailrace_spark.batch.dead_letters import DeadLetterStore
from tailrace_spark.batch.delivery import DeadLetter, Piece, RecordId, Summary
from tailrace_spark.batch.task_batch import PartitionResult, TaskBatch
from tailrace_spark.sinks.changelog.log_task import ImagingPlanner, LogTask, PartitionOpener, letters_of
from tailrace_spark.sinks.changelog.sink import ChangeLogSink, Imaging, Outlet
from tailrace_spark.sinks.protocol import Capabilities


class StoredDeadLettersSink(ChangeLogSink):
    """As ChangeLogSink; the outlet puts what it sets aside into the store.

    What is replayed comes behind newer changes of its key, with its own place and write times. It has no images, as
    the rows before and after it are those of another time.

    With an `opener`, and a `planner` where there are images, tasks write too, and readers leave out by its place what
    comes twice. Every attempt at a task writes each key in order, from the batch's beginning on. So the first copies
    are in order, whatever other attempts do, and there is nothing to fence but the images' state.
    """

    def __init__(
        self,
        outlet: Outlet,
        store: DeadLetterStore,
        imaging: Imaging | None = None,
        opener: PartitionOpener | None = None,
        planner: ImagingPlanner | None = None,
        *,
        transactions: bool = False,
    ) -> None:
        super().__init__(outlet, imaging, transactions=transactions)
        self._store = store
        self._planner = planner
        self._opener = opener if imaging is None or planner is not None else None

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, dead_letters=self, tasks=None if self._opener is None else self)

    def reach(self) -> None:
        """As ChangeLogSink's. Raises SettingsError where the store has letters of a later version: nothing is sent."""
        super().reach()
        self._store.list(None, 1)

    def dead_letters(self, after: RecordId | None, limit: int) -> Sequence[DeadLetter]:
        return self._store.list(after, limit)

    def replay(self, letters: Sequence[DeadLetter], pieces: Iterable[Piece]) -> Summary:
        """Send each by itself, and remove it once it is out: after a crash between the two it is sent again."""
        summary = Summary()
        by_key = {letter.record_id.key: letter for letter in letters}
        unsent = dict(by_key)
        for piece in pieces:
            summary += Summary(dead_letters=len(piece.dead_letters))
            for letter in piece.dead_letters:
                unsent.pop(letter.record_id.key, None)
            for delivered in piece.changes:
                unsent.pop(delivered.record_id.key, None)
                sent = self.emit([Piece((delivered,))])
                if not sent.dead_letters:
                    self._store.remove([by_key[delivered.record_id.key]])
                summary += sent
        self._store.remove(list(unsent.values()))  # filters left them out
        return summary

    def fence(self, stream: str) -> None:
        """As TaskSink says, of what readers see: what a task still writes is a copy of what is written already."""
        if self._planner is not None:
            self._planner.fence(stream)

    def plan(self, batch: TaskBatch, definitions: Sequence[tuple[int, Table]]) -> LogTask:
        """As TaskSink says."""
        if self._opener is None:
            raise ValueError("a sink without an opener has no tasks: capabilities.tasks says so")
        return LogTask(self._opener, batch, None if self._planner is None else self._planner.plan(batch, definitions))

    def commit(self, batch: TaskBatch, results: Sequence[PartitionResult]) -> Summary:
        """As TaskSink says: the dead letters that tasks brought are put into their store."""
        del batch
        self._store.put(letters_of(results))
        if self._planner is not None:
            self._planner.commit()
        return sum((result.summary for result in results), Summary())
