"""A change log whose dead letters are in a file: they can be read back, and sent again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, RecordId, Summary
from tailrace_spark.sinks.changelog.dead_letter_file import DeadLetterFile
from tailrace_spark.sinks.changelog.sink import ChangeLogSink, Imaging, Outlet
from tailrace_spark.sinks.protocol import Capabilities


class FiledLogSink(ChangeLogSink):
    """As ChangeLogSink; the outlet puts what it sets aside into the file.

    What is sent again comes behind newer changes of its key, with its own place and write times, and without images:
    the rows of before and after are those of another time.
    """

    def __init__(self, outlet: Outlet, file: DeadLetterFile, imaging: Imaging | None = None) -> None:
        super().__init__(outlet, imaging)
        self._file = file

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, dead_letters=self)

    def letters(self, after: RecordId | None, most: int) -> Sequence[DeadLetter]:
        """As DeadLetterSink has it."""
        behind = None if after is None else after.key
        return [
            DeadLetter(
                RecordId(one["topic"], one["partition"], one["offset"], bytes.fromhex(one["schema"] or "")),
                one["reason"],
                bytes.fromhex(one["message"] or ""),
            )
            for one in self._file.waiting(behind, most)
        ]

    def write_again(self, letters: Sequence[DeadLetter], pieces: Iterable[Piece]) -> Summary:
        """Send each by itself; it goes from the letters once it is out, so a crash between the two sends it again."""
        done = Summary()
        waiting = {letter.record_id.key for letter in letters}
        for piece in pieces:
            waiting -= {letter.record_id.key for letter in piece.dead_letters}
            done += Summary(dead_letters=len(piece.dead_letters))
            for delivered in piece.changes:
                done += self._again(delivered)
                waiting.discard(delivered.record_id.key)
        self._file.taken_in(waiting)  # what filters leave out
        return done

    def _again(self, delivered: Delivered) -> Summary:
        done = self.emit([Piece((delivered,))])
        if not done.dead_letters:
            self._file.taken_in([delivered.record_id.key])
        return done
