"""What a stream's settings ask and its sink may not take: rows that tables have already, updates taken apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tailrace_common.sections.stream import StreamSettings
from tailrace_common.selection import listed
from tailrace_schemas.errors import SettingsError
from tailrace_spark.sinks.protocol import Capabilities
from tailrace_spark.snapshot.progress import Snapshots

_COPY: Final = 'stream.snapshot = "initial" copies them, `tailrace snapshot start KEYSPACE.TABLE` those of one table'
_LATER: Final = "`tailrace snapshot start KEYSPACE.TABLE` copies those of a table that got cdc = true later"
_NOT_FOR_LOG_TABLES: Final = "log tables repeat updates as they were written, and rows that were read are none"
_LOG_TABLES: Final = "not for log tables: they repeat each update as it was written"
_TRANSACTIONS: Final = (
    "not for a sink with transactions: these have every change of a mutation, as one replica logged it. Remove one of "
    "both settings"
)


@dataclass(frozen=True, slots=True)
class ExistingRows:
    """What a stream does with them, in words, and how to have it otherwise."""

    copied: bool
    words: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.words}; {self.advice}" if self.advice else self.words


def refused_by(sink: Capabilities) -> str | None:
    """Why a sink takes no rows that were read, None where it does."""
    return _NOT_FOR_LOG_TABLES if sink.whole_updates is not None else None


def existing_rows(stream: StreamSettings, noted: Snapshots, *, started: bool, refused: str | None) -> ExistingRows:
    """What a stream does with them, `noted` being its progress. One that began without them keeps to that.

    It would copy whole tables else because its settings say nothing. `started`: Spark has noted where it begins.
    `refused` says why the sink takes no snapshots, None where it does.
    """
    if refused is not None:
        return ExistingRows(False, f"not copied: {refused}")
    if noted.initial:
        return ExistingRows(True, f"copied once: {_shown(noted)}", _LATER)
    if stream.snapshot == "never":
        return ExistingRows(False, 'not copied (stream.snapshot = "never")', _COPY)
    if started and not noted.copies and not stream.chooses_snapshot:
        return ExistingRows(False, "not copied: the stream began without them", _COPY)
    if stream.snapshot == "only":
        return ExistingRows(True, 'copied once, then the stream ends (stream.snapshot = "only")')
    words = "copied once from Cassandra, while changes are followed"
    return ExistingRows(True, words, 'stream.snapshot = "never" leaves them out')


def _shown(noted: Snapshots) -> str:
    """The tables, each with the state of its newest snapshot."""
    states = {snapshot.table: snapshot.state for snapshot in noted.tables}
    return listed([f"{table} ({state})" for table, state in states.items()]) or "no table had any"


def require_fit(stream: StreamSettings, capabilities: Capabilities) -> None:
    """Raise SettingsError where the settings ask of a sink what it has not.

    Executors are to write it, and it has no writers for them. Or filters, masks or left-out copies would take apart
    what it is given whole.
    """
    if stream.execution == "executors" and not capabilities.executors:
        words = 'this sink is written by the driver alone; set "auto" or "driver"'
        raise SettingsError(f'stream.execution = "executors": {words}')
    if capabilities.whole_updates is None and not capabilities.transactions:
        return
    words = _TRANSACTIONS if capabilities.transactions else _LOG_TABLES
    if stream.where:
        raise SettingsError(f"stream.where is {words}")
    if stream.columns:
        raise SettingsError(f"stream.columns is {words}")
    if capabilities.transactions and stream.one_copy_seconds is not None:
        raise SettingsError(f"stream.one_copy_seconds is {words}")
