"""The schema file that a command is given (JSON lines, gzip or not), and rows of `system_schema` for such files."""

from __future__ import annotations

import difflib
import gzip
import io
import json
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final
from uuid import UUID

from tailrace.cluster import LiveCluster
from tailrace.history.events import Subject
from tailrace.history.records import HistoryRecord
from tailrace.history.rows import KeyedRow
from tailrace.segments.files import GZIP
from tailrace_common.cli.console import say
from tailrace_common.settings import Settings
from tailrace_schemas.definitions import SchemaFile, read_schema_file, schema_row_to_json
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.system_tables import system_tables
from tailrace_schemas.table import Table

# Options of tables by which a schema file tells the release line that wrote it (definitions.SchemaFile).
_TELLING: Final = ("allow_auto_snapshot", "memtable")
_OF_TABLES: Final = ("system_schema", "tables")


def chosen_rows(rows: Collection[KeyedRow], names: Collection[str]) -> list[KeyedRow]:
    """The rows of the tables that are named, as KEYSPACE.TABLE, KEYSPACE.* or a table's id, and their keyspaces' types.

    All rows where no name is given. Raises SettingsError for a name that no row has.
    """
    if not names:
        return list(rows)
    tables = {row.owner: row for row in rows if row.table in ("tables", "views")}
    owners = set()
    for name in names:
        matching = {owner for owner, row in tables.items() if name in _names(owner, row)}
        if not matching:
            all_names = sorted({table_owner for owner, row in tables.items() for table_owner in _names(owner, row)})
            nearest = difflib.get_close_matches(name, all_names, n=1)
            advice = f"did you mean {nearest[0]}?" if nearest else "give KEYSPACE.TABLE, KEYSPACE.* or a table's id"
            raise SettingsError(f"{name}: no such table is defined; {advice}")
        owners |= matching
    keyspaces = {keyspace for keyspace, _ in owners}
    return [row for row in rows if row.owner in owners or (row.table == "types" and row.owner[0] in keyspaces)]


def rows_of_history(records: Iterable[HistoryRecord], names: Collection[str]) -> list[KeyedRow]:
    """The newest definition of each table that a host ever had, dropped ones included.

    Of several tables of one name it is the last one's, unless another one's id is among `names`.
    """
    newest: dict[tuple[str, str], HistoryRecord] = {}
    named: dict[tuple[str, str], HistoryRecord] = {}
    for record in records:
        if record.subject is Subject.TABLE and record.rows:
            newest[record.name] = record
            if str(record.table_id) in names:
                named[record.name] = record
    rows: dict[tuple[str, object], KeyedRow] = {}
    for record in (newest | named).values():
        for row in record.rows:
            row_key = (row.owner[0], row.key)
            if row_key not in rows or row.written >= rows[row_key].written:
                rows[row_key] = row
    return list(rows.values())


def lines_of(rows: Collection[KeyedRow], all_rows: Iterable[KeyedRow]) -> Iterator[str]:
    """The lines of a schema file (raw-dump.md). `all_rows`: those of the node, which tell its release line."""
    options = {row.row.get("column_name") for row in all_rows if row.table == "columns" and row.owner == _OF_TABLES}
    telling = {name: None for name in _TELLING if name in options}
    for row in rows:
        values = {**row.row, **telling} if row.table == "tables" else row.row
        yield json.dumps({"table": row.table, "row": schema_row_to_json(values)}, ensure_ascii=False)


def _names(owner: tuple[str, str], row: KeyedRow) -> tuple[str, str, str]:
    table_id = row.row.get("id")
    return ".".join(owner), f"{owner[0]}.*", str(table_id) if isinstance(table_id, UUID) else ""


def open_schema(path: Path) -> SchemaFile:
    """What the file defines. Raises SettingsError, which names the file, for what is no such file or cannot be read."""
    try:
        content = path.read_bytes()
        if content.startswith(GZIP):
            content = gzip.decompress(content)
        return read_schema_file(io.StringIO(content.decode()))
    except SettingsError as error:
        raise SettingsError(f"{path}: {str(error).removeprefix('schema file').lstrip(':, ')}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: not UTF-8 text") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise SettingsError(f"{path}: broken gzip: {error}") from None
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from None


def definitions_of(schema: Path | None) -> tuple[tuple[Table, ...], str | None]:
    """Built-in definitions, then those of the file, which win; and the release line that wrote the file."""
    if schema is None:
        return system_tables(), None
    file = open_schema(schema)
    for problem in file.definitions.problems:
        say(f"{schema}: {problem}")
    return (*system_tables(), *file.definitions.tables), file.release


def chosen(
    definitions: tuple[Table, ...], names: Collection[str] | None
) -> tuple[frozenset[UUID] | None, tuple[Table, ...]]:
    """The ids of the named tables, None for all, and all definitions: what is named counts as published.

    Raises SettingsError for a name that no definition has.
    """
    if not names:
        return None, definitions
    ids_by_name: dict[str, set[UUID]] = {}
    for definition in definitions:
        ids_by_name.setdefault(str(definition), set()).add(definition.id)
        ids_by_name.setdefault(f"{definition.keyspace}.*", set()).add(definition.id)
    unknown = next((name for name in names if name not in ids_by_name), None)
    if unknown is not None:
        nearest = difflib.get_close_matches(unknown, ids_by_name, n=1)
        advice = f"did you mean {nearest[0]}?" if nearest else "give its rows with --schema"
        raise SettingsError(f"--table {unknown}: no such table is defined; {advice}")
    ids = frozenset[UUID]().union(*(ids_by_name[name] for name in names))
    return ids, tuple(replace(table, cdc=True) if table.id in ids else table for table in definitions)


def definitions_of_cluster(settings: Settings) -> SchemaFile:
    """What `schema export` would write of the cluster, read as a schema file. Raises ServiceError, SettingsError."""
    return read_schema_file(lines_of_cluster(settings, ()))


def lines_of_cluster(settings: Settings, names: list[str] | tuple[()]) -> list[str]:
    """Rows of `system_schema`, of the named tables or of all, as `schema export` writes them. Raises ServiceError."""
    with closing(LiveCluster(settings.cluster)) as cluster:
        rows = cluster.schema_rows()
    return list(lines_of(chosen_rows(rows, names), rows))
