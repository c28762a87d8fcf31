"""The records of `<prefix>.schema-history`: a definition and the position from which it holds (contracts.md 1)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final
from uuid import UUID

from tailrace.history.events import Subject
from tailrace.history.rows import KeyedRow, Name, definitions_of
from tailrace.history.schema import SchemaHistory
from tailrace_schemas.definitions import schema_row_from_json, schema_row_to_json
from tailrace_schemas.errors import TailraceError
from tailrace_schemas.formats import json_object, packed, require_format
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table, sharing

FORMAT: Final = 1
CUT: Final = 2
"""The format of a head: the record is cut into parts."""
# What the records of most brokers may have at least, key and everything around included.
_PART: Final = 900_000

BEGINNING: Final = Position(0, 0, 0)
"""The position of what was read from the cluster before the log was: log epochs begin at 1."""


class HistoryError(TailraceError):
    """A record of the schema history is not one that this version can go on from."""


class OtherHistoryError(HistoryError):
    """A record of another version."""


@dataclass(frozen=True, slots=True)
class HistoryRecord:
    """A table's definition from a position on, as the rows that make it; without rows the table was dropped there.

    `unreadable`: why nothing is known of it but its place, where the topic's record is damaged.
    `inferred`: the log did not say it, so that it may be wrong for some of what it holds for, up to the next one.
    `metadata`: the epoch of Cassandra 6's metadata that made it. Of a keyspace or type (`subject`) only what it is
    itself is kept, under an id of ours. `dropped`: of a DROP of a table, its write time in microseconds, where known.
    """

    position: Position
    table_id: UUID
    name: Name
    rows: tuple[KeyedRow, ...] = ()
    inferred: bool = False
    metadata: int | None = None
    subject: Subject = Subject.TABLE
    unreadable: str = ""
    dropped: int | None = None
    definition: Table | None = field(default=None, compare=False, repr=False)
    """What the rows make, where that is worked out already."""

    @property
    def weight(self) -> int:
        """About how many bytes its value has."""
        return 200 + sum(_weight(row) for row in self.rows)

    @property
    def table(self) -> Table | None:
        """The definition; None where nothing is left of it, and for keyspaces and types. Raises HistoryError where the
        rows make none."""
        if self.definition is not None or not self.rows or self.subject is not Subject.TABLE:
            return self.definition
        definitions = definitions_of(self.rows)
        if not definitions.tables:
            raise HistoryError(f"the schema history of {'.'.join(self.name)} defines nothing: {definitions.problems}")
        return definitions.tables[0]


def _weight(keyed: KeyedRow) -> int:
    texts = (value for value in keyed.row.values() if isinstance(value, str | bytes))
    lists = (sum(map(len, value)) for value in keyed.row.values() if isinstance(value, list | tuple))
    return 250 + 2 * sum(map(len, texts)) + sum(lists)


def history_of(records: Iterable[HistoryRecord]) -> SchemaHistory:
    """The schema history that records say, which come by position.

    Behind an unreadable record its table's definition goes on to hold, marked as inferred: nothing else is known.
    """
    history = SchemaHistory()
    tables = (record for record in records if record.subject is Subject.TABLE)
    # Of thousands of tables that were read at once, each step would copy what is known of all others.
    for (position, inferred, metadata), group in groupby(tables, _step):
        defined = list[Table]()
        for record in group:
            newest = history.newest(record.table_id)
            table = newest if record.unreadable else record.table
            if table is not None:
                defined.append(table if newest is None else sharing(newest, table))
            elif newest is not None:
                history = history.drop((newest,))[0]
        history = history.define(position, defined, inferred=inferred, metadata=metadata)[0]
    return history


def _step(record: HistoryRecord) -> tuple[Position, bool, int | None]:
    return record.position, record.inferred or bool(record.unreadable), record.metadata


def history_key(host: str, record: HistoryRecord) -> bytes:
    """`<host id>/<table id>/<epoch>/<segment>/<offset>`."""
    position = record.position
    return f"{host}/{record.table_id}/{position.epoch}/{position.segment}/{position.offset}".encode()


def encode_history(record: HistoryRecord) -> bytes:
    """{keyspace, name, rows: [{table, row, written}], inferred, metadata, subject, dropped, format: 1}; rows as `dump
    --schema` reads them, `dropped` where it is known."""
    value = {
        "keyspace": record.name[0],
        "name": record.name[1],
        "rows": [
            {"table": row.table, "row": schema_row_to_json(row.row), "written": row.written} for row in record.rows
        ],
        "inferred": record.inferred,
        "metadata": record.metadata,
        "subject": record.subject.value,
        **({} if record.dropped is None else {"dropped": record.dropped}),
        "format": FORMAT,
    }
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def history_values(host: str, record: HistoryRecord, limit: int = _PART) -> list[tuple[bytes, bytes]]:
    """Key and value of a record; where the value has more than `limit` bytes, those of a head and of the parts.

    A part's key has its number behind the table id and a dot, a head is {parts, format: 2}. The parts' values in their
    order are the record's value. All belong into one transaction.
    """
    key, value = history_key(host, record), packed(encode_history(record))
    limit = min(limit, _PART)
    if len(value) <= limit:
        return [(key, value)]
    pieces = [value[start : start + limit] for start in range(0, len(value), limit)]
    head = json.dumps({"parts": len(pieces), "format": CUT}, separators=(",", ":")).encode()
    return [(key, head), *((_part_key(key, part_number), piece) for part_number, piece in enumerate(pieces))]


def _part_key(key: bytes, part_number: int) -> bytes:
    host, table_id, *position = key.rsplit(b"/", 4)
    return b"/".join((host, table_id + b".%d" % part_number, *position))


def read_history(host: str, keyed_values: Iterable[tuple[bytes, bytes | None]]) -> tuple[HistoryRecord, ...]:
    """This host's records by position, from keys and values in the topic's order; of a key the last value counts.

    A damaged record is there as `unreadable`; what has no key of ours is passed over. Raises HistoryError for a record
    of another version.
    """
    newest = {key: value for key, value in keyed_values if key.startswith(f"{host}/".encode())}
    own_values = {key: value for key, value in newest.items() if value is not None}
    records = (_decode(key, value, own_values) for key, value in own_values.items())
    # A DROP comes before a CREATE of the same name in the same mutation, whatever the ids.
    return tuple(
        sorted(filter(None, records), key=lambda record: (record.position, bool(record.rows), str(record.table_id)))
    )


def _decode(key: bytes, value: bytes, own_values: Mapping[bytes, bytes]) -> HistoryRecord | None:
    try:
        _, table_id, epoch, segment, offset = key.decode().rsplit("/", 4)
        position, id = Position(int(epoch), int(segment), int(offset)), UUID(table_id)
    except ValueError:
        return None  # a part, or not ours
    try:
        record = _whole(key, json_object(value), own_values)
        decoded = HistoryRecord(
            position,
            id,
            (str(record["keyspace"]), str(record["name"])),
            tuple(
                KeyedRow(str(row["table"]), schema_row_from_json(row["row"]), int(row["written"]))
                for row in record["rows"]
            ),
            bool(record["inferred"]),
            record["metadata"],
            Subject(record["subject"]),
            dropped=record.get("dropped"),
        )
        return replace(decoded, definition=decoded.table)
    except OtherHistoryError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, HistoryError) as error:
        return HistoryRecord(position, id, ("", ""), unreadable=f"{type(error).__name__}: {str(error)[:200]}")


def _whole(key: bytes, record: dict[str, Any], own_values: Mapping[bytes, bytes]) -> dict[str, Any]:
    """A record, put together where it was cut. Raises HistoryError for another version; ValueError, KeyError."""
    if record["format"] == FORMAT:
        return record
    require_format("a record of the schema history", int(record["format"]), CUT, error=OtherHistoryError)
    numbers = range(min(int(record["parts"]), len(own_values)))
    joined = json_object(b"".join(own_values[_part_key(key, part_number)] for part_number in numbers))
    if joined["format"] != FORMAT:
        raise ValueError("a record that was cut twice")
    return joined
