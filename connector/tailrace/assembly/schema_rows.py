"""Rows of `system_schema` for schema files: of the cluster, or of a host's schema history; chosen, and as lines."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterable, Iterator
from typing import Final
from uuid import UUID

from tailrace.history.events import Subject
from tailrace.history.records import HistoryRecord
from tailrace.history.rows import KeyedRow
from tailrace_schemas.definitions import schema_row_to_json
from tailrace_schemas.errors import SettingsError

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
    chosen = set()
    for name in names:
        matching = {owner for owner, row in tables.items() if name in _names(owner, row)}
        if not matching:
            all_names = sorted({table_owner for owner, row in tables.items() for table_owner in _names(owner, row)})
            nearest = difflib.get_close_matches(name, all_names, n=1)
            advice = f"did you mean {nearest[0]}?" if nearest else "give KEYSPACE.TABLE, KEYSPACE.* or a table's id"
            raise SettingsError(f"{name}: no such table is defined; {advice}")
        chosen |= matching
    keyspaces = {keyspace for keyspace, _ in chosen}
    return [row for row in rows if row.owner in chosen or (row.table == "types" and row.owner[0] in keyspaces)]


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
