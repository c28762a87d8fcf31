"""The agent's own errors, beside those that both halves share (tailrace_schemas.errors)."""

from __future__ import annotations

from uuid import UUID

from tailrace_schemas.errors import CorruptError, DecodeError, ServiceError, TailraceError, UnsupportedError


class UnknownTableError(TailraceError):
    """A partition update names a table that no known definition explains; the rest of its mutation is unreadable."""

    def __init__(self, table_id: UUID) -> None:
        super().__init__(f"table id {table_id} is in no known schema")
        self.table_id = table_id


class NewerSchemaError(UnknownTableError):
    """A partition update was written by a later definition than any that was read, by its metadata epoch (6.0)."""

    def __init__(self, table_id: UUID, epoch: int, read_epoch: int) -> None:
        TailraceError.__init__(
            self,
            f"a write of table id {table_id} rests on metadata epoch {epoch}, "
            f"and the log's DDL was read up to {read_epoch}",
        )
        self.table_id = table_id


class UnknownColumnError(DecodeError):
    """A partition update names a column that its table's known definition has neither live nor dropped.

    To be answered like an unknown table: the definition is older than the write, the bytes are not damaged.
    """

    def __init__(self, table_id: UUID, table: str, name: bytes) -> None:
        super().__init__(f"column {name!r} of {table} is not in the known definition of table id {table_id}")
        self.table_id = table_id
        self.name = name


class HeldError(TailraceError):
    """Changes of a table cannot be published yet, and nothing is damaged: the message says why and what to do."""

    def __init__(self, message: str, table_id: UUID | None = None) -> None:
        super().__init__(message)
        self.table_id = table_id


class TooLargeError(HeldError):
    """A change has more bytes than its topic takes; the table's other changes go on."""


class UnexplainedError(TailraceError):
    """A mutation that neither the log's DDL nor the present schema explains: it waits for that table's definition.

    Without a table id it is held, and all that follows with it: the definition will come at once.
    """

    def __init__(self, message: str, table_id: UUID | None = None) -> None:
        super().__init__(message)
        self.table_id = table_id


class RenewalError(TailraceError):
    """The next transaction needs a producer with another time-out; nothing is wrong, and nothing is open."""


class MissingKeyError(UnsupportedError):
    """A segment is encrypted with a key that was not given; the message names its alias."""


class WrongKeyError(CorruptError):
    """Cipher text that its key does not open: of another key, or damaged. The bytes do not tell which."""


class AgentRunsError(TailraceError):
    """What must not be done while a host's agent runs was asked for, and it seems to run."""


class DataLossError(TailraceError):
    """Segments were deleted before they were read; the message names the gap."""

    exit_code = 4


class LogEpochError(TailraceError):
    """A segment at or below the position was never read: this host id has another commit log than before."""

    def __init__(self, file: str, position: str) -> None:
        super().__init__(
            f"{file} is at or below the published position {position}, but was never read: the node has another "
            "commit log than before (a replaced disk, or a new node with an old host id). If that is so, "
            "`tailrace offsets adopt --new-log` opens the next log epoch; if the file was put there by hand, move it "
            "away. Nothing is published until then"
        )


class ForbiddenError(ServiceError):
    """Cassandra refuses what was asked for to this role; the message says which right it lacks."""
