"""Log tables as ScyllaDB lays them out: which columns a table's log has, and the CQL that makes and widens it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tailrace_common.sections.template import fit
from tailrace_schemas.cql.types import CqlType, freeze, quote_identifier
from tailrace_schemas.errors import UnsupportedError
from tailrace_schemas.table import VIEW, Column, Table

SUFFIX: Final = "_scylla_cdc_log"
META: Final = "cdc$"
STREAM_ID: Final = "cdc$stream_id"
TIME: Final = "cdc$time"
BATCH_SEQ_NO: Final = "cdc$batch_seq_no"
OPERATION: Final = "cdc$operation"
TTL: Final = "cdc$ttl"
END_OF_BATCH: Final = "cdc$end_of_batch"

_DELETED: Final = "cdc$deleted_"
_DELETED_ELEMENTS: Final = "cdc$deleted_elements_"
_COMMENT: Final = "CDC log for "
_LONGEST_NAME: Final = 48  # SchemaConstants.NAME_LENGTH
_BOOLEAN: Final = CqlType("boolean")
_TIMEUUID: Final = CqlType("timeuuid")
_WINDOWS: Final = 24
_META_COLUMNS: Final[Mapping[str, CqlType]] = {
    STREAM_ID: CqlType("blob"),
    TIME: _TIMEUUID,
    BATCH_SEQ_NO: CqlType("int"),
    OPERATION: CqlType("tinyint"),
    TTL: CqlType("bigint"),
    END_OF_BATCH: _BOOLEAN,
}


@dataclass(frozen=True, slots=True)
class LogTable:
    """The log table of one definition: where it is, and its columns with their types, the key's three first."""

    keyspace: str
    name: str
    base: Table
    columns: Mapping[str, CqlType]

    def __str__(self) -> str:
        return f"{self.keyspace}.{self.name}"

    @property
    def cql_name(self) -> str:
        """Its name in CQL, quoted where it must be."""
        return f"{quote_identifier(self.keyspace)}.{quote_identifier(self.name)}"


def log_table(table: Table, keyspace: str) -> LogTable:
    """The log table of a definition (docs/log-tables.md; ScyllaDB's create_log_schema).

    A multi-cell column is frozen there, a list as the map of its cells' time UUIDs. Raises UnsupportedError for
    counter tables and views, which ScyllaDB has no log of either, and for columns that are called as the log's own. So
    it does where the log would have two columns of one name.
    """
    if table.is_counter:
        raise UnsupportedError(f"{table}: counter tables have no log table; leave the table out of the stream")
    if VIEW in table.flags:
        raise UnsupportedError(f"{table}: materialized views have no log table; leave the view out of the stream")
    columns = dict(_META_COLUMNS)
    for column in (*table.key, *table.columns):
        if column.name.startswith(META):
            raise UnsupportedError(f"{table}: column {column.name} is called as those of log tables are")
        if column.type.kind != "empty":  # the value of a dense table that has none
            columns[column.name] = log_type(column.type)
    edited = {deleted_elements(column) for column in table.columns if column.type.multicell}
    if shared := edited.intersection(map(deleted, table.columns)):
        raise UnsupportedError(f"{table}: two columns of its log table would be called {min(shared)}; leave it out")
    for column in table.columns:
        if column.type.kind != "empty":
            columns[deleted(column)] = _BOOLEAN
        if column.type.multicell:
            columns[deleted_elements(column)] = CqlType("set", (path_type(column.type),), frozen=True)
    return LogTable(keyspace, log_name(table.name), table, columns)


def log_name(table: str) -> str:
    """`<table>_scylla_cdc_log`; a table's name that is too long for that is cut, and has a hash."""
    return fit(table, _LONGEST_NAME - len(SUFFIX)) + SUFFIX


def deleted(column: Column) -> str:
    """The column that says that this one was deleted."""
    return _DELETED + column.name


def deleted_elements(column: Column) -> str:
    """The column that has the paths of this one's deleted cells."""
    return _DELETED_ELEMENTS + column.name


def log_type(cql_type: CqlType) -> CqlType:
    """A column's type in the log table."""
    if not cql_type.multicell:
        return cql_type
    if cql_type.kind == "list":
        return CqlType("map", (_TIMEUUID, cql_type.args[0]), frozen=True)
    return freeze(cql_type)


def path_type(cql_type: CqlType) -> CqlType:
    """The type of the paths of a multi-cell column's cells: map keys, set elements, list cells' ids, field numbers."""
    match cql_type.kind:
        case "list":
            return _TIMEUUID
        case "udt":
            return CqlType("smallint")
        case _:
            return freeze(cql_type.args[0])


def create_statement(log: LogTable, ttl_seconds: int) -> str:
    """CREATE TABLE, with the options that ScyllaDB gives its log tables: whole sstables expire."""
    columns = ", ".join(f"{quote_identifier(name)} {cql_type}" for name, cql_type in log.columns.items())
    key = ", ".join(f'"{name}"' for name in (STREAM_ID, TIME, BATCH_SEQ_NO))
    compaction = "{'class': 'TimeWindowCompactionStrategy'}"
    options = [f"comment = '{_COMMENT}{str(log.base).replace(chr(39), chr(39) * 2)}'"]
    if ttl_seconds:
        window = -(-ttl_seconds // _WINDOWS)
        compaction = (
            "{'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'MINUTES', "
            f"'compaction_window_size': '{-(-window // 60)}', "
            f"'expired_sstable_check_frequency_seconds': '{max(1, window // 2)}'}}"
        )
        options.append("gc_grace_seconds = 0")
    options.append(f"compaction = {compaction}")
    return f"CREATE TABLE IF NOT EXISTS {log.cql_name} ({columns}, PRIMARY KEY ({key})) WITH {' AND '.join(options)}"


def missing_columns(log: LogTable, existing: Mapping[str, str]) -> list[str]:
    """The columns that a log table lacks; `existing` are the types of its columns by name."""
    return [name for name in log.columns if name not in existing]


def dropped_columns(log: LogTable, existing: Mapping[str, str]) -> list[str]:
    """The columns of a log table for columns that its table has no longer.

    A former name of a key column is none of them: rows that were written under it have their keys there.
    """
    return [
        name
        for name in existing
        if name not in log.columns and (name.startswith(_DELETED) or _DELETED + name in existing)
    ]


def add_statement(log: LogTable, columns: Iterable[str]) -> str:
    """ALTER TABLE that adds columns: readers never see a column without those that belong to it."""
    listed = ", ".join(f"{quote_identifier(name)} {log.columns[name]}" for name in columns)
    return f"ALTER TABLE {log.cql_name} ADD ({listed})"


def drop_statement(log: LogTable, columns: Iterable[str]) -> str:
    """ALTER TABLE that drops columns."""
    return f"ALTER TABLE {log.cql_name} DROP ({', '.join(map(quote_identifier, columns))})"


def base_of(comment: str) -> str | None:
    """keyspace.table of the table whose log a table is, by its comment; None where it is not one that we made."""
    return comment.removeprefix(_COMMENT) if comment.startswith(_COMMENT) else None


def insert_statement(log: LogTable, columns: Collection[str]) -> str:
    """INSERT of a row: these columns in their order, then write time (microseconds) and time to live (seconds).

    With the write's own time, so that a row that is written again is the same row, and `writetime` tells it.
    """
    names = ", ".join(map(quote_identifier, columns))
    marks = ", ".join("?" * len(columns))
    return f"INSERT INTO {log.cql_name} ({names}) VALUES ({marks}) USING TIMESTAMP ? AND TTL ?"  # noqa: S608 - names are quoted
