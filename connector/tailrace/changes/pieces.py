"""A large mutation to messages a few at a time: it is read more than once, and never held as changes."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from tailrace.changes.transcode import UNTRACKED, Message, TableWriter, Transcoder, Unit, Update
from tailrace.commitlog.mutation import MutationVisitor, UpdateVisitor, read_mutation
from tailrace.commitlog.plans import TablePlan
from tailrace_schemas.change import Source
from tailrace_schemas.table import Table

# So much is handed over at a time.
_PIECE_BYTES: Final = 256 << 10
_PIECE_MESSAGES: Final = 512
# Of an update whose changes stand in another order than that of their write times, so many are held at a time.
WINDOW: Final = 16_384

Put = Callable[[list[Message]], None]
Tables = Callable[[bytes], Table | None]
Dated = Callable[[bytes, int], Table | None]


def put_pieces(
    put: Put,
    transcoder: Transcoder,
    payload: bytes,
    version: int,
    tables: Tables,
    source: Source,
    dated: Dated | None = None,
    window: i64 = WINDOW,
) -> int:
    """As `transcoder.messages`, in the same order, but the messages are handed to `put`, a few at a time; their number.

    The mutation is read once before the first of them, for what raises and for their number and order.
    """
    transcoder.begin(source)
    transcoder.see(source.position.epoch, source.position.segment)
    pieces = _Pieces(transcoder, put, source.position.offset, window)
    read_mutation(transcoder.reader, payload, version, tables, pieces, dated)
    pieces.survey_is_over()
    while pieces.more():
        read_mutation(transcoder.reader, payload, version, tables, pieces, dated)
        pieces.end_pass()
    pieces.flush()
    return pieces.count


class _Pieces(MutationVisitor):
    """The survey, then as many passes as it takes: each goes on with the update, or the window of it, that is next."""

    def __init__(self, transcoder: Transcoder, put: Put, offset: i64, window: i64) -> None:
        self.count: i64 = 0
        self._transcoder = transcoder
        self._put = put
        self._offset: i64 = offset
        self._window: i64 = window
        self._surveys: list[_Survey] = []
        self._surveying = True
        self._met: i64 = 0
        self._current: i64 = 0
        self._start: i64 = 0
        self._piece: _Piece | None = None
        self._index: i64 = 0
        self._first: i64 = 0
        self._messages: list[Message] = []
        self._size: i64 = 0

    def update(self, table_plan: TablePlan) -> UpdateVisitor:
        if not table_plan.table.cdc:
            return UNTRACKED
        writer = self._transcoder.updates.writer(table_plan)
        if self._surveying:
            survey = _Survey(writer)
            self._surveys.append(survey)
            return survey
        self._end_piece()
        index = self._met
        self._met = index + 1
        if index != self._current:
            return UNTRACKED
        self._piece = _Piece(writer, self, self._surveys[index], self._start, self._window)
        return self._piece

    def survey_is_over(self) -> None:
        """All of the mutation was read."""
        self._surveying = False
        for survey in self._surveys:
            self.count += survey.changes
            survey.rank()

    def more(self) -> bool:
        """Whether there is something left to put; then the next pass begins."""
        self._met = 0
        return self._current < len(self._surveys)

    def end_pass(self) -> None:
        """All of the mutation was read once more."""
        self._end_piece()

    def _end_piece(self) -> None:
        piece = self._piece
        if piece is None:
            return
        self._piece = None
        piece.put_window()
        self._start += self._window
        if piece.survey.sorted or self._start >= piece.survey.units_seen:
            self._current += 1
            self._start = 0
            self._first = self._index

    def put_unit(self, update: Update, body: bytes, data: bytes | None) -> None:
        """The next change, or two."""
        self._put_body(update, body)
        if data is not None:
            self._put_body(update, data)

    def _put_body(self, update: Update, body: bytes) -> None:
        last = self._first + self._surveys[self._current].changes - 1
        several = len(self._surveys) > 1
        message = self._transcoder.message_in(
            update, body, self._offset, self._index, self.count, self._first, last, several
        )
        self._index += 1
        self._messages.append(message)
        self._size += len(message.value)
        if self._size >= _PIECE_BYTES or len(self._messages) >= _PIECE_MESSAGES:
            self.flush()

    def flush(self) -> None:
        """Hand over what was made."""
        if self._messages:
            messages = self._messages
            self._messages = []
            self._size = 0
            self._put(messages)


class _Survey(Update):
    """How many changes an update has, and their order: 17 bytes each, where a change takes hundreds."""

    def __init__(self, writer: TableWriter) -> None:
        super().__init__(writer)
        self.changes: i64 = 0
        self.units_seen: i64 = 0
        self.sorted = True
        self.places: list[int] = []
        self._written = array("q")
        self._kinds = array("b")
        self._wire = array("q")

    def wants(self, written: i64, deletes: bool, static: bool, wire_index: i64, changes: i64) -> bool:
        kind: i64 = (2 if deletes else 0) + (0 if static else 1)
        if self.units_seen and self.sorted:
            previous: tuple[int, int, int] = (self._written[-1], self._kinds[-1], self._wire[-1])
            self.sorted = previous <= (written, kind, wire_index)
        self.units_seen += 1
        self.changes += changes
        self._written.append(written)
        self._kinds.append(kind)
        self._wire.append(wire_index)
        return False

    def rank(self) -> None:
        """Find the place of each unit among the others, where it is not that of its reading."""
        if not self.sorted:
            # The sorts are stable, so the last one decides first.
            order = sorted(range(self.units_seen), key=self._wire.__getitem__)
            order.sort(key=self._kinds.__getitem__)
            order.sort(key=self._written.__getitem__)
            ranks = order.copy()
            for rank, unit in enumerate(order):
                ranks[unit] = rank
            self.places = ranks
        self._written = array("q")
        self._kinds = array("b")
        self._wire = array("q")


class _Piece(Update):
    """The changes of an update that are put in this pass: all, or those of a window."""

    def __init__(self, writer: TableWriter, pieces: _Pieces, survey: _Survey, start: i64, window: i64) -> None:
        super().__init__(writer)
        self.survey = survey
        self.streamed = survey.streamed
        self._pieces = pieces
        self._start: i64 = start
        self._unit: i64 = 0
        self._slot: i64 = 0
        self._slots: list[Unit | None] = []
        if not survey.sorted:
            remaining = survey.units_seen - start
            self._slots = [None] * (window if window < remaining else remaining)

    def wants(self, written: i64, deletes: bool, static: bool, wire_index: i64, changes: i64) -> bool:  # noqa: ARG002
        if self.survey.sorted:
            return True
        self._slot = self.survey.places[self._unit] - self._start
        self._unit += 1
        return 0 <= self._slot < len(self._slots)

    def add(self, unit: Unit) -> None:
        if self.survey.sorted:
            self._pieces.put_unit(self, unit.body, unit.data)
        else:
            self._slots[self._slot] = unit

    def put_window(self) -> None:
        """Put what was held, in its order."""
        for unit in self._slots:
            if unit is not None:
                self._pieces.put_unit(self, unit.body, unit.data)
        self._slots = []
