"""Whose fault an exception is: one table's, whose changes are set aside or kept, or the store's, which holds the batch.

The one rule of all sinks (docs/contracts.md 6). While changes of one table are prepared or written, an exception of any
type is that table's. For an error of a library or of ours must not stop the other tables. These are faults of the store
as a whole: ServiceError (it does not answer), SettingsError, FencedError, OSError (a full disk, a lost connection),
MemoryError. So is everything that is no Exception, and what a task leaves to its driver (HereOnlyError). An OSError
about a name that is too long is its table's.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from errno import ENAMETOOLONG
from typing import Final, TypeVar
from uuid import UUID

from tailrace_common.secrets import redact
from tailrace_schemas.change import Op
from tailrace_schemas.errors import FencedError, SchemaRefusedError, ServiceError, SettingsError
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, RecordKey, Summary
from tailrace_spark.merge.batch_changes import group_by_table
from tailrace_spark.merge.condition import RowFilters, predicate_of
from tailrace_spark.merge.row import ShownRows, shown_rows
from tailrace_spark.sinks.letters import Letters
from tailrace_spark.sinks.protocol import HereOnlyError

log = logging.getLogger("tailrace_spark")

_Item = TypeVar("_Item")

REMEMBERED_SECONDS: Final = 60.0
_LONGEST: Final = 500
_TOO_LONG: Final = ("File name too long", "KeyTooLong")  # as libraries quote operating systems, and S3
_OF_THE_STORE: Final = (ServiceError, SettingsError, FencedError, OSError, MemoryError, HereOnlyError)
_BACKTRACE: Final = re.compile(r"\n\s*0: ")  # of libraries in Rust
_PANIC: Final = "PanicException"  # of libraries in Rust: no Exception, and each has a class of its own


class TableRefusedError(ServiceError):
    """The store answers, and refuses one table: its definition, its name, or what is to be written into it."""


class Refusals:
    """What a store refused at the end of a batch, by a table's name there.

    The batch is then delivered again, and the changes of that table set aside from the beginning. After a minute the
    table is tried again: somebody may have mended it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._reasons: dict[str, tuple[str, float]] = {}

    def note(self, name: str, error: BaseException) -> None:
        """Remember it."""
        self._reasons[name] = reason_of(error), self._clock() + REMEMBERED_SECONDS

    def remembered(self) -> dict[str, str]:
        """Why each of the tables that `check` refuses now was refused."""
        now = self._clock()
        return {name: reason for name, (reason, until) in self._reasons.items() if now < until}

    def check(self, name: str) -> None:
        """Raises TableRefusedError for what was refused within the last minute."""
        reason, until = self._reasons.get(name, ("", 0.0))
        if reason and self._clock() < until:
            raise TableRefusedError(reason)
        self._reasons.pop(name, None)


def is_of_table(error: BaseException) -> bool:
    """Whether an exception from work on one table's changes is that table's, so that the other tables go on."""
    if isinstance(error, TableRefusedError | SchemaRefusedError):
        return True
    if isinstance(error, OSError) and is_of_a_name(error):
        return True
    if isinstance(error, _OF_THE_STORE):
        return False
    return isinstance(error, Exception) or type(error).__name__ == _PANIC


def is_of_a_name(error: BaseException) -> bool:
    """Whether a store has no such long names: then what was made of one table's is refused, and nothing else."""
    return getattr(error, "errno", None) == ENAMETOOLONG or any(words in str(error) for words in _TOO_LONG)


def reason_of(error: BaseException) -> str:
    """What an exception says, in one line, without what looks like credentials; no store refuses its characters."""
    words = " ".join(redact(_BACKTRACE.split(str(error))[0]).replace("\0", "\ufffd").split())
    name = "" if isinstance(error, ServiceError | ValueError) and words else type(error).__name__
    return ": ".join(filter(None, (name, words)))[:_LONGEST]


def refusals_of(changes: Iterable[Delivered], letters: Sequence[DeadLetter]) -> dict[str, str]:
    """By table, why changes among these were set aside; of several reasons the last. For Summary.refused."""
    if not letters:
        return {}
    tables = {delivered.record_id.key: str(delivered.change.table) for delivered in changes}
    return {tables[letter.record_id.key]: letter.reason for letter in letters if letter.record_id.key in tables}


def letters_of(changes: Iterable[Delivered], reason: str) -> list[DeadLetter]:
    """A dead letter of each of these changes."""
    return [DeadLetter(delivered.record_id, reason, delivered.message) for delivered in changes]


def in_halves(
    items: Sequence[_Item], write: Callable[[Sequence[_Item]], None], refuse: Callable[[_Item, BaseException], None]
) -> list[_Item]:
    """Those that are written. Where some are refused, halves of them are written, until each that is stands alone."""
    if not items:
        return []
    try:
        write(items)
    except BaseException as error:
        if not is_of_table(error):
            raise
        if len(items) == 1:
            refuse(items[0], error)
            return []
    else:
        return list(items)
    middle = len(items) // 2
    return in_halves(items[:middle], write, refuse) + in_halves(items[middle:], write, refuse)


class TruncationsAside:
    """Truncations that were set aside with their table's changes, and come before its next ones.

    A letter of one may stay for days. Without it the record of another host or Kafka partition would be the first of
    its statement. Then it would erase all that is stored, and what was written since (`rowstate.truncation`).
    """

    def __init__(self) -> None:
        self._by_table: dict[UUID, dict[RecordKey, Delivered]] = {}

    def of(self, table_id: UUID) -> Sequence[Delivered]:
        """Those of a table, in their order."""
        return [*self._by_table.get(table_id, {}).values()]

    def note(self, changes: Iterable[Delivered]) -> None:
        """Changes of one table were set aside."""
        for delivered in changes:
            if delivered.change.op is Op.TRUNCATE:
                of_table = self._by_table.setdefault(delivered.change.table.id, {})
                of_table[delivered.record_id.key] = delivered

    def written(self, table_id: UUID) -> None:
        """Those of a table are written."""
        self._by_table.pop(table_id, None)

    def require_none(self, table: Table) -> None:
        """Raises HereOnlyError where a table has some: tasks do not take truncations."""
        if self.of(table.id):
            raise HereOnlyError(f"a truncation of {table} that was set aside")


def written_by_table(
    pieces: Iterable[Piece],
    letters: Letters,
    write: Callable[[Sequence[Delivered], list[DeadLetter]], int],
    truncations: TruncationsAside | None = None,
) -> Summary:
    """Write the changes of each table; what one table's raise sets these aside, and the others go on.

    `write` gives how many rows changed, and adds those changes that it sets aside itself. `truncations` are those that
    the caller has set aside so far; tasks have none.
    """
    truncations = truncations or TruncationsAside()
    aside: list[DeadLetter] = []
    by_table: dict[UUID, list[Delivered]] = {}
    for piece in pieces:
        aside += piece.dead_letters
        group_by_table(piece.changes, by_table)
    summary = Summary()
    for changes in by_table.values():
        refused, table = list[DeadLetter](), changes[0].change.table
        try:
            rows = write([*truncations.of(table.id), *changes], refused)
        except BaseException as error:
            if not is_of_table(error):
                raise
            truncations.note(changes)
            summary += set_aside(table, changes, error, aside)
        else:
            truncations.written(table.id)
            summary += Summary(len(changes) - len(refused), rows, refused=refusals_of(changes, refused))
            aside += refused
    letters.put(aside)
    return summary + Summary(dead_letters=len(aside))


def set_aside(table: Table, changes: Sequence[Delivered], error: BaseException, letters: list[DeadLetter]) -> Summary:
    """Set all of these changes of a table aside, for an exception that is its; the sum says the table and why."""
    reason = reason_of(error)
    letters += letters_of(changes, reason)
    log.warning("%s: %d changes go to the dead letters, other tables go on: %s", table, len(changes), reason)
    return Summary(refused={str(table): reason})


def shown_in_sink(filters: RowFilters, table: Table) -> ShownRows | None:
    """Which rows of a table are shown; None: all. Raises TableRefusedError where a filter does not fit the table."""
    with _refusing():
        return shown_rows(filters, table)


def rows_matching(filters: RowFilters, table: Table) -> Callable[[Mapping[str, object]], bool] | None:
    """Whether a row matches, by its values that are not null; None: all do.

    Raises TableRefusedError where a filter does not fit the table.
    """
    with _refusing():
        predicate = predicate_of(filters, table)
    if predicate is None:
        return None
    names = [column.name for column in predicate.columns]
    return lambda values: predicate.holds([values.get(name) for name in names])


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except SettingsError as error:
        raise TableRefusedError(str(error)) from None
