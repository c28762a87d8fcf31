"""The SQLite file that the stream writes, read beside it: rows of a table, of a partition, of a key; stream ids."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from tailrace_schemas.change import Change, Op
from tailrace_schemas.clustering import clustering_key, range_limits
from tailrace_schemas.streams import StreamId

_BUSY_SECONDS: Final = 10.0
# What stands where in NAME__state, as tailrace_spark.sinks.state_store.state_table says.
_PARTITION: Final = b"\x00"
_STATIC: Final = b"\x01"
_RANGE: Final = b"\x02"
_ROW: Final = b"\x03"


class SqliteFile:
    """Reads the file; every call sees the last batch that the stream has written as a whole.

    One connection a call: the file may not exist yet, and a table not either; both read as no rows.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self, table: str, where: Mapping[str, object] | None = None) -> list[Mapping[str, Any]]:
        """The rows of a table whose columns have these values."""
        names = tuple(where or ())
        condition = " AND ".join(f'"{name}" = ?' for name in names)
        query = f'SELECT * FROM "{table}"' + (f" WHERE {condition}" if names else "")  # noqa: S608 - names of ours
        return self._read(query, [where[name] for name in names] if where else [])

    def count(self, table: str) -> int:
        """How many rows a table has."""
        rows = self._read(f'SELECT count(*) AS n FROM "{table}"', [])  # noqa: S608 - a name of ours
        return int(rows[0]["n"]) if rows else 0

    def stream_id(self, table: str, change: Change) -> str | None:
        """The stream id that stands beside the change's place: its row, static row, range or partition.

        Where a later deletion took that place along, it is the stream id of the partition's newest deletion.
        """
        clustering = _place(change)
        query = (
            f'SELECT stream_id FROM "{table}__state" WHERE key = ?'  # noqa: S608 - a name of ours
            " AND (clustering = ? OR substr(clustering, 1, 1) IN (?, ?)) ORDER BY clustering = ? DESC, newest DESC"
        )
        rows = self._read(query, [change.key, clustering, _PARTITION, _RANGE, clustering])
        stream_id = rows[0]["stream_id"] if rows else None
        return None if stream_id is None else str(StreamId(stream_id))

    def spoil(self, table: str, column: str, where: Mapping[str, object]) -> None:
        """Change a value behind the stream's back, to see that the comparison tells."""
        condition = " AND ".join(f'"{name}" = ?' for name in where)
        with closing(sqlite3.connect(self.path, timeout=_BUSY_SECONDS)) as connection, connection:
            statement = f'UPDATE "{table}" SET "{column}" = ? WHERE {condition}'  # noqa: S608 - names of ours
            connection.execute(statement, ["spoiled", *where.values()])

    def _read(self, query: str, values: Sequence[object]) -> list[Mapping[str, Any]]:
        if not self.path.exists():
            return []
        address = f"{self.path.as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS)) as connection:
            connection.row_factory = sqlite3.Row
            try:
                return [dict(row) for row in connection.execute(query, values)]
            except sqlite3.OperationalError as error:
                if "no such table" in str(error):
                    return []
                raise


def _place(change: Change) -> bytes:
    """The clustering value under which a change is merged."""
    if change.op is Op.DELETE_PARTITION:
        return _PARTITION
    if change.start is not None and change.end is not None:
        return _RANGE + range_limits(change.table, change.start, change.end)[0]
    if change.static:
        return _STATIC
    return _ROW + clustering_key(change.table, change.clustering or ())
