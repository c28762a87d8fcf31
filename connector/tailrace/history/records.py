"""The records of `<prefix>.schema-history`: a definition and the position from which it holds (contracts.md 1)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from tailrace.history.events import Subject
from tailrace.history.rows import KeyedRow, Name, definitions_of
from tailrace.history.schema import SchemaHistory
from tailrace.position import Position
from tailrace_schemas.definitions import schema_row_from_json, schema_row_to_json
from tailrace_schemas.errors import TailraceError
from tailrace_schemas.table import Table

FORMAT: Final = 1

BEGINNING: Final = Position(0, 0, 0)
"""The position of what was read from the cluster before the log was: log epochs begin at 1."""


class HistoryError(TailraceError):
    """A record of the schema history is not one that this version can go on from."""


@dataclass(frozen=True, slots=True)
class HistoryRecord:
    """A table's definition from a position on, as the rows that make it; without rows the table was dropped there.

    `inferred`: the log did not say it, so that it may be wrong for some of what it holds for, up to the next one.
    `metadata`: the epoch of Cassandra 6's metadata that made it. Of a keyspace or type (`subject`) only what it is
    itself is kept, under an id of ours.
    """

    position: Position
    table_id: UUID
    name: Name
    rows: tuple[KeyedRow, ...] = ()
    inferred: bool = False
    metadata: int | None = None
    subject: Subject = Subject.TABLE

    @property
    def table(self) -> Table | None:
        """The definition; None where nothing is left of it, and for keyspaces and types. Raises HistoryError where the
        rows make none."""
        if not self.rows or self.subject is not Subject.TABLE:
            return None
        definitions = definitions_of(self.rows)
        if not definitions.tables:
            raise HistoryError(f"the schema history of {'.'.join(self.name)} defines nothing: {definitions.problems}")
        return definitions.tables[0]


def history_of(records: Iterable[HistoryRecord]) -> SchemaHistory:
    """The schema history that records say, which come by position."""
    history = SchemaHistory()
    for record in records:
        if record.subject is not Subject.TABLE:
            continue
        table = record.table
        if table is None:
            timeline = history.timelines.get(record.table_id)
            history = history.drop(() if timeline is None else (timeline.newest,))[0]
        else:
            history = history.define(record.position, (table,), inferred=record.inferred, metadata=record.metadata)[0]
    return history


def history_key(host: str, record: HistoryRecord) -> bytes:
    """`<host id>/<table id>/<epoch>/<segment>/<offset>`."""
    at = record.position
    return f"{host}/{record.table_id}/{at.epoch}/{at.segment}/{at.offset}".encode()


def encode_history(record: HistoryRecord) -> bytes:
    """{keyspace, name, rows: [{table, row, written}], inferred, metadata, subject, format: 1}; rows as `dump --schema`
    reads them."""
    value = {
        "keyspace": record.name[0],
        "name": record.name[1],
        "rows": [
            {"table": one.table, "row": schema_row_to_json(one.row), "written": one.written} for one in record.rows
        ],
        "inferred": record.inferred,
        "metadata": record.metadata,
        "subject": record.subject.value,
        "format": FORMAT,
    }
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def read_history(host: str, found: Iterable[tuple[bytes, bytes | None]]) -> tuple[HistoryRecord, ...]:
    """This host's records by position, from keys and values in the topic's order; of a key the last value counts.

    Raises HistoryError for one of a later version, and for what is no record of ours.
    """
    own: Mapping[bytes, bytes | None] = {key: value for key, value in found if key.startswith(f"{host}/".encode())}
    records = (_decode(key, value) for key, value in own.items() if value is not None)
    return tuple(sorted(records, key=lambda record: (record.position, str(record.table_id))))


def _decode(key: bytes, value: bytes) -> HistoryRecord:
    try:
        _, table_id, epoch, segment, offset = key.decode().rsplit("/", 4)
        record: dict[str, Any] = json.loads(value)
        if record["format"] > FORMAT:
            raise HistoryError(
                f"the schema history has a record of format {record['format']}, this Tailrace writes {FORMAT}: "
                "run the newer Tailrace that wrote it"
            )
        return HistoryRecord(
            Position(int(epoch), int(segment), int(offset)),
            UUID(table_id),
            (str(record["keyspace"]), str(record["name"])),
            tuple(
                KeyedRow(str(one["table"]), schema_row_from_json(one["row"]), int(one["written"]))
                for one in record["rows"]
            ),
            bool(record["inferred"]),
            record.get("metadata"),
            Subject(record.get("subject", Subject.TABLE)),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise HistoryError(f"the schema history has a record that is not ours ({error!r}): {key!r}") from error
