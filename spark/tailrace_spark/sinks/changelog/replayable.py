"""A change log whose outlet takes its dead letters back in one step with what becomes of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from tailrace_spark.batch.delivery import DeadLetter, Piece, RecordId, RecordKey, Summary
from tailrace_spark.batch.sink_progress import SinkProgress
from tailrace_spark.sinks.changelog.sink import Batch, ChangeLogSink, Imaging, Outlet
from tailrace_spark.sinks.protocol import Capabilities


class LetterOutlet(Outlet, Protocol):
    """An outlet that keeps its letters. tests/unit/spark/sinks/letters_contract.py says what each must do."""

    def letters(self, after: RecordId | None, most: int) -> Sequence[DeadLetter]:
        """As DeadLetterSink has it."""

    def begin_again(self, letters: Sequence[DeadLetter]) -> Batch:
        """A batch of the changes of these letters. Its commit writes them and lets go of the letters: both or neither.

        What is set aside stays a letter, with its new reason. A letter that another replay took meanwhile is left
        out. Raises ServiceError, FencedError, SettingsError.
        """


class ReplayingLogSink(ChangeLogSink):
    """As ChangeLogSink. What is written again has its own place and write times, and no images: the rows of before and
    after are those of another time."""

    def __init__(self, outlet: LetterOutlet, imaging: Imaging | None = None) -> None:
        super().__init__(outlet, imaging)
        self._keeper = outlet

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, dead_letters=self)

    def letters(self, after: RecordId | None, most: int) -> Sequence[DeadLetter]:
        """As DeadLetterSink has it."""
        return self._keeper.letters(after, most)

    def write_again(self, letters: Sequence[DeadLetter], pieces: Iterable[Piece]) -> Summary:
        """As DeadLetterSink has it."""
        return self.into(self._keeper.begin_again(letters), pieces)


class ProgressOutlet(LetterOutlet, Protocol):
    """An outlet that keeps how far each stream is in it, as ProgressSink says."""

    def progress(self, stream: str) -> SinkProgress | None: ...

    def keep_progress(self, progress: SinkProgress) -> None: ...


class ProgressLogSink(ReplayingLogSink):
    """As ReplayingLogSink, and a ProgressSink."""

    def __init__(self, outlet: ProgressOutlet, imaging: Imaging | None = None) -> None:
        super().__init__(outlet, imaging)
        self._progress = outlet

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, progress=self)

    def progress(self, stream: str) -> SinkProgress | None:
        """As ProgressSink says."""
        return self._progress.progress(stream)

    def keep_progress(self, progress: SinkProgress) -> None:
        """As ProgressSink says."""
        self._progress.keep_progress(progress)


def page(places: Iterable[RecordKey], after: RecordId | None, most: int) -> list[RecordKey]:
    """So many at most, in their order, behind a place."""
    behind = None if after is None else after.key
    return sorted(one for one in places if behind is None or one > behind)[:most]
