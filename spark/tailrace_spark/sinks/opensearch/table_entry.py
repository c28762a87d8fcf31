"""What is kept of a table in its own document: its record (merge.table_record), with what is yet to be erased.

The record has a version of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tailrace_schemas.change import Deletion
from tailrace_schemas.errors import CorruptError
from tailrace_spark.merge.table_record import TableRecord, decode_record, encode_record
from tailrace_spark.rowstate.deletions import stronger
from tailrace_spark.rowstate.truncation import EVERYTHING

_MICROS: Final = 1_000_000
_ERASED: Final = "erased"


@dataclass(frozen=True, slots=True)
class TableEntry(TableRecord):
    """What is known of a table as a whole.

    `erased`: what truncations took that is yet to go from the rows that are there; None: nothing.
    """

    erased: Deletion | None = None

    def with_erased(self, erased: Deletion | None) -> TableEntry:
        """The same where a batch's truncations took this too; None: nothing."""
        return self if erased is None else replace(self, erased=stronger(erased, self.erased))


def encode_entry(entry: TableEntry) -> bytes:
    """The bytes kept of a table."""
    return encode_record(entry, None if entry.erased is None else {_ERASED: entry.erased.written}).encode()


def decode_entry(encoded: bytes) -> TableEntry:
    """What these bytes say. Raises DecodeError, and SettingsError for those of another version."""
    record, additions = decode_record(encoded)
    erased = additions.get(_ERASED)
    if not isinstance(erased, int | None):
        raise CorruptError(f"a table's record is damaged: `{_ERASED}` is {erased!r}")
    return TableEntry(
        record.definition,
        record.announced,
        record.truncations,
        record.purged_to,
        erased=None if erased is None else _erased(erased),
    )


def _erased(written: int) -> Deletion:
    # Which deletion it is decides how it is erased, so that of everything must come back as itself.
    return EVERYTHING if written == EVERYTHING.written else Deletion(written, written // _MICROS)
