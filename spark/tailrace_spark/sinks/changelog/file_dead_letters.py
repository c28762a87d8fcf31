"""A change log whose dead letters are in a file: they can be read back, and sent again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tailrace_spark.batch.dead_letters import DeadLetterStore
from tailrace_spark.batch.delivery import DeadLetter, Piece, RecordId, Summary
from tailrace_spark.sinks.changelog.sink import ChangeLogSink, Imaging, Outlet
from tailrace_spark.sinks.protocol import Capabilities


class StoredDeadLettersSink(ChangeLogSink):
    """As ChangeLogSink; the outlet puts what it sets aside into the store.

    What is replayed comes behind newer changes of its key, with its own place and write times. It has no images, as
    the rows before and after it are those of another time.
    """

    def __init__(self, outlet: Outlet, store: DeadLetterStore, imaging: Imaging | None = None) -> None:
        super().__init__(outlet, imaging)
        self._store = store

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, dead_letters=self)

    def dead_letters(self, after: RecordId | None, limit: int) -> Sequence[DeadLetter]:
        return self._store.list(after, limit)

    def replay(self, letters: Sequence[DeadLetter], pieces: Iterable[Piece]) -> Summary:
        """Send each by itself, and remove it once it is out: after a crash between the two it is sent again."""
        summary = Summary()
        by_key = {letter.record_id.key: letter for letter in letters}
        left = dict(by_key)
        for piece in pieces:
            summary += Summary(dead_letters=len(piece.dead_letters))
            for letter in piece.dead_letters:
                left.pop(letter.record_id.key, None)
            for delivered in piece.changes:
                left.pop(delivered.record_id.key, None)
                sent = self.emit([Piece((delivered,))])
                if not sent.dead_letters:
                    self._store.remove([by_key[delivered.record_id.key]])
                summary += sent
        self._store.remove(list(left.values()))  # filters left them out
        return summary
