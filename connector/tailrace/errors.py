"""The agent's own errors, beside those that both halves share (tailrace_schemas.errors)."""

from __future__ import annotations

from uuid import UUID

from tailrace_schemas.errors import TailraceError


class UnknownTableError(TailraceError):
    """A partition update names a table that no known definition explains; the rest of its mutation is unreadable."""

    def __init__(self, table_id: UUID) -> None:
        super().__init__(f"table id {table_id} is in no known schema")
        self.table_id = table_id


class FencedError(TailraceError):
    """Another agent started with this host's transactional id; this one may publish nothing more."""

    exit_code = 5


class DataLossError(TailraceError):
    """Segments were deleted before they were read; the message names the gap."""

    exit_code = 4
