"""A change log whose outlet takes its dead letters back in one step with what becomes of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from tailrace_spark.batch.delivery import DeadLetter, Piece, RecordId, Summary
from tailrace_spark.batch.sink_progress import SinkProgress
from tailrace_spark.sinks.changelog.sink import Batch, ChangeLogSink, Imaging, Outlet
from tailrace_spark.sinks.protocol import Capabilities


class ReplayableOutlet(Outlet, Protocol):
    """An outlet that keeps its dead letters. tests/unit/spark/sinks/letters_contract.py says what each must do."""

    def dead_letters(self, after: RecordId | None, limit: int) -> Sequence[DeadLetter]:
        """As DeadLetterSink has it."""

    def begin_replay(self, letters: Sequence[DeadLetter]) -> Batch:
        """A batch of the changes of these letters. Its commit writes them and removes the letters: both or neither.

        What is set aside stays a letter, with its new reason. A letter that another replay took meanwhile is left
        out. Raises ServiceError, FencedError, SettingsError.
        """


class ReplayableLogSink(ChangeLogSink):
    """As ChangeLogSink. What is written again has its own place and write times, and no images: the rows of before and
    after are those of another time."""

    def __init__(self, outlet: ReplayableOutlet, imaging: Imaging | None = None, *, transactions: bool = False) -> None:
        super().__init__(outlet, imaging, transactions=transactions)
        self._replayable = outlet

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, dead_letters=self)

    def dead_letters(self, after: RecordId | None, limit: int) -> Sequence[DeadLetter]:
        return self._replayable.dead_letters(after, limit)

    def replay(self, letters: Sequence[DeadLetter], pieces: Iterable[Piece]) -> Summary:
        return self.into(self._replayable.begin_replay(letters), pieces)


class ProgressOutlet(ReplayableOutlet, Protocol):
    """An outlet that keeps how far each stream is in it, as ProgressSink says."""

    def progress(self, stream: str) -> SinkProgress | None: ...

    def keep_progress(self, progress: SinkProgress) -> None: ...


class ProgressLogSink(ReplayableLogSink):
    """As ReplayableLogSink, and a ProgressSink."""

    def __init__(self, outlet: ProgressOutlet, imaging: Imaging | None = None, *, transactions: bool = False) -> None:
        super().__init__(outlet, imaging, transactions=transactions)
        self._progress = outlet

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, progress=self)

    def progress(self, stream: str) -> SinkProgress | None:
        return self._progress.progress(stream)

    def keep_progress(self, progress: SinkProgress) -> None:
        self._progress.keep_progress(progress)
