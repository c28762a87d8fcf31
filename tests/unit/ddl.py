"""DDL as a node logs it: mutations of `system_schema`, made of the definitions before and after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from tailrace.commitlog.model import Mutation, PartitionUpdate, Row
from tailrace.commitlog.mutation import decode_mutation
from tailrace.history.rows import KeyedRow
from tailrace_schemas.change import Cell, Deletion, Marker
from tailrace_schemas.cql.values import codec
from tailrace_schemas.system_tables import system_tables
from tailrace_schemas.table import Column, Table
from tests.support.schema import rows_of
from tests.unit.commitlog.written import Stats, encode

SCHEMA = {table.name: table for table in system_tables() if table.keyspace == "system_schema"}
LOCAL, WATCHED_LOG = (
    next(table for table in system_tables() if str(table) == name)
    for name in ("system.local", "system.local_metadata_log")
)
NOW = 1_700_000_000_000_000


def create(table: Table, written: int = NOW) -> bytes:
    """CREATE TABLE, or CREATE TYPE and CREATE TABLE in one where it has user types."""
    return alter(None, table, written)


def drop(table: Table, written: int = NOW) -> bytes:
    return alter(table, None, written)


def drop_keyspace(keyspace: str, written: int = NOW) -> bytes:
    names = ("columns", "types", "keyspaces", "dropped_columns", "tables", "views")
    return _mutation([_update(name, keyspace, (), Deletion(written, written // 1_000_000)) for name in names])


def keyspace(name: str, written: int = NOW, *, durable: bool = True) -> bytes:
    """CREATE or ALTER KEYSPACE; the row stands in all other DDL of the keyspace too."""
    columns = {column.name: column for column in SCHEMA["keyspaces"].regular}
    replication = [{"key": "class", "value": "SimpleStrategy"}, {"key": "replication_factor", "value": "1"}]
    values = {"durable_writes": durable, "replication": replication}
    cells = tuple(
        Cell(columns[one], None, written, None, None, codec(columns[one].type).encode(value))
        for one, value in sorted(values.items())
    )
    return _mutation([_update("keyspaces", name, [Row(clustering=(), marker=Marker(written), cells=cells)])])


def truncate(table_id: UUID, at: int, upto: tuple[int, int] = (-1, 0)) -> bytes:
    """What a node logs of TRUNCATE; `at` in milliseconds, `upto` a segment and an offset; without it no position."""
    value = upto[0].to_bytes(8, "big", signed=True) + upto[1].to_bytes(4, "big", signed=True) + at.to_bytes(8, "big")
    return _local("truncated_at", value, table_id.bytes, at * 1000)


def schema_version(epoch: int, written: int = NOW) -> bytes:
    """What a node of Cassandra 6 logs when it has come to an epoch."""
    return _local("schema_version", UUID(int=epoch).bytes, None, written)


def metadata_log(epoch: int, written: int = NOW) -> bytes:
    """What it logs before."""
    update = PartitionUpdate(
        table=WATCHED_LOG, key=epoch.to_bytes(8, "big"), items=(Row(clustering=(), marker=Marker(written)),)
    )
    return encode(Mutation(updates=(update,)), Stats(), [((), ())])


def _local(column: str, value: bytes, path: bytes | None, written: int) -> bytes:
    (one,) = (known for known in LOCAL.regular if known.name == column)
    row = Row(clustering=(), cells=(Cell(one, path, written, None, None, value),))
    update = PartitionUpdate(table=LOCAL, key=b"local", items=(row,))
    return encode(Mutation(updates=(update,)), Stats(), [((), (one,))])


def alter(before: Table | None, after: Table | None, written: int = NOW) -> bytes:
    """What differs: rows that go, and rows that are new or other; the table's own row always."""
    old = {(row.table, row.key[1]): row for row in _rows(before)}
    new = {(row.table, row.key[1]): row for row in _rows(after)}
    gone = [row for key, row in old.items() if key not in new and row.table != "types"]
    changed = [row for key, row in new.items() if row.table == "tables" or old.get(key) != row]
    keyspace = (before or after or next(iter(SCHEMA.values()))).keyspace
    return mutation(keyspace, changed, gone, written)


def mutation(keyspace: str, rows: Iterable[KeyedRow], gone: Iterable[KeyedRow] = (), written: int = NOW) -> bytes:
    """A mutation of these rows, and of deletions of others."""
    by_table: dict[str, list[Row]] = {}
    for one in rows:
        by_table.setdefault(one.table, []).append(_row(one, written))
    for one in gone:
        deletion = Deletion(written, written // 1_000_000)
        by_table.setdefault(one.table, []).append(Row(clustering=_clustering(one), deletion=deletion))
    return _mutation([_update(name, keyspace, found) for name, found in sorted(by_table.items())])


def together(*payloads: bytes) -> bytes:
    """The rows of several statements in one mutation, each at its own time, as a node sends its whole schema."""
    items: dict[str, list[Row]] = {}
    by_id = {table.id: table for table in SCHEMA.values()}
    key = b""
    for payload in payloads:
        for update in decode_mutation(payload, 7, by_id.get).updates:
            key = update.key
            items.setdefault(update.table.name, []).extend(item for item in update.items if isinstance(item, Row))
    return _mutation([_update(name, key.decode(), rows) for name, rows in sorted(items.items())])


def _rows(table: Table | None) -> tuple[KeyedRow, ...]:
    return () if table is None else rows_of(table)


def _row(one: KeyedRow, written: int) -> Row:
    table = SCHEMA[one.table]
    cells = [
        Cell(column, None, written, None, None, codec(column.type).encode(_plain(one.row[column.name])))
        for column in table.regular
        if one.row.get(column.name) is not None
    ]
    marker = Marker(written)
    # The table's row replaces what was there.
    deletion = Deletion(written - 1, written // 1_000_000) if one.table == "tables" else None
    return Row(clustering=_clustering(one), marker=marker, deletion=deletion, cells=tuple(cells))


def _plain(value: object) -> object:
    if isinstance(value, UUID):
        return str(value)
    return sorted(value) if isinstance(value, frozenset) else value


def _clustering(one: KeyedRow) -> tuple[bytes | None, ...]:
    return tuple(value.encode() for value in one.key[1])


def _update(name: str, keyspace: str, rows: Iterable[Row], deletion: Deletion | None = None) -> PartitionUpdate:
    ordered = tuple(sorted(rows, key=lambda row: row.clustering))
    return PartitionUpdate(table=SCHEMA[name], key=keyspace.encode(), deletion=deletion, items=ordered)


def _mutation(updates: list[PartitionUpdate]) -> bytes:
    times = [time for update in updates for time in _times(update)]
    stats = Stats(timestamp=min(times, default=NOW))
    return encode(Mutation(updates=tuple(updates)), stats, [((), _columns(update)) for update in updates])


def _times(update: PartitionUpdate) -> Iterator[int]:
    if update.deletion is not None:
        yield update.deletion.written
    for item in update.items:
        if isinstance(item, Row):
            yield from (one.written for one in (item.marker, item.deletion, *item.cells) if one is not None)


def _columns(update: PartitionUpdate) -> list[Column]:
    found = {cell.column for item in update.items if isinstance(item, Row) for cell in item.cells}
    return sorted(found, key=lambda column: column.name_bytes)
