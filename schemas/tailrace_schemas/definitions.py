"""Rows of `system_schema` to tables: as the driver gives them, or from a file of them as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from tailrace_schemas.cql.types import CqlType, TypeSyntaxError, UserTypeDefinition, UserTypes, parse_type
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.table import STRICT, VIEW, Column, ColumnKind, DroppedColumn, Table

SchemaRow = Mapping[str, Any]
"""One row of a `system_schema` table: column name -> value as cassandra-driver gives it; None for null."""

_TABLES: Final = ("tables", "views", "columns", "dropped_columns", "types")
_KEY_KINDS: Final = frozenset({ColumnKind.PARTITION_KEY.value, ColumnKind.CLUSTERING.value})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a table, or one dropped column of it, has no definition. `table` is keyspace and name."""

    table: str
    id: UUID | None
    reason: str

    def __str__(self) -> str:
        return f"{self.table}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Definitions:
    """What a set of schema rows defines: tables and views by keyspace and name, and what could not be understood.

    A problem keeps its own table out, never another. One with a dropped column leaves the table in, without it.
    """

    tables: tuple[Table, ...]
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """A file of schema rows. `release` is the release line that wrote them: "4.0", "4.1" or "5.0"."""

    definitions: Definitions
    release: str


def tables_from_rows(
    *,
    tables: Iterable[SchemaRow],
    columns: Iterable[SchemaRow],
    dropped_columns: Iterable[SchemaRow] = (),
    types: Iterable[SchemaRow] = (),
    views: Iterable[SchemaRow] = (),
) -> Definitions:
    """The definitions that rows of `system_schema.{tables,columns,dropped_columns,types,views}` hold.

    Rows may be of any keyspaces and in any order. `dropped_time` is milliseconds, or a datetime (naive = UTC); ask
    Cassandra for `toUnixTimestamp(dropped_time)` where system keyspaces are included, theirs are beyond any datetime.
    Null `cdc` is false, null `kind` of a dropped column is regular, null or missing `flags` are {compound}. Views have
    those of `view_with_flags`. SchemaKeyspace.createTableFromRow, createColumnFromRow, createDroppedColumnFromRow.
    """
    columns_of = _by_table(columns)
    dropped_of = _by_table(dropped_columns)
    types_of, no_types = _user_types(types), UserTypes({})
    defined: list[Table] = []
    problems: list[Problem] = []
    named = [(row, str(row["table_name"])) for row in tables]
    for row in views:
        keyspace, name, base = row["keyspace_name"], str(row["view_name"]), str(row.get("base_table_name"))
        flagged = view_with_flags(row, columns_of.get((keyspace, name), ()), columns_of.get((keyspace, base), ()))
        named.append((flagged, name))
    for row, name in sorted(named, key=lambda item: (item[0]["keyspace_name"], item[1])):
        keyspace = str(row["keyspace_name"])
        user_types = types_of.get(keyspace, no_types)
        try:
            dropped = _dropped(dropped_of.get((keyspace, name), ()), keyspace, user_types, problems)
            defined.append(_table(row, name, columns_of.get((keyspace, name), ()), dropped, user_types))
        except (TypeSyntaxError, KeyError, ValueError, TypeError) as error:
            problems.append(Problem(f"{keyspace}.{name}", _id_or_none(row), _reason(error)))
    return Definitions(tuple(defined), tuple(problems))


def view_with_flags(view: SchemaRow, columns: Iterable[SchemaRow], base: Iterable[SchemaRow]) -> SchemaRow:
    """A view's row with the flags of its definition, which follow from its columns and those of its base table.

    The row itself has none. One that has is returned as it is: it was kept, and what it follows from was not.
    """
    if view.get("flags") is not None:
        return view
    key, base_key = ({row["column_name"] for row in rows if row.get("kind") in _KEY_KINDS} for rows in (columns, base))
    strict = {STRICT} if base_key and key - base_key else set()
    return {**view, "flags": frozenset({"compound", VIEW, *strict})}


def read_schema_file(lines: Iterable[str]) -> SchemaFile:
    """Read JSON lines `{"table": "columns", "row": {...}}`, one per row of `system_schema`.

    Blobs are "0x" and hex digits, ids their text, times "2026-11-21 07:43:09.889Z"; other tables' rows are passed
    over. Raises SettingsError that names the line which is not such a row.
    """
    rows: dict[str, list[SchemaRow]] = {name: [] for name in _TABLES}
    for line_number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            name, row = entry["table"], entry["row"]
            if name in rows:
                rows[name].append(schema_row_from_json(row))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SettingsError(
                f'schema file, line {line_number}: not a row as {{"table": ..., "row": {{...}}}}: {_reason(error)}'
            ) from None
    try:
        definitions = tables_from_rows(**rows)
    except (KeyError, TypeError) as error:
        raise SettingsError(f"schema file: a row of system_schema lacks its key: {_reason(error)}") from None
    return SchemaFile(definitions, _release(rows["tables"]))


def _release(tables: list[SchemaRow]) -> str:
    """The release line, by the options that each added to `system_schema.tables` (compared on live nodes)."""
    if any("allow_auto_snapshot" in row for row in tables):
        return "5.0"
    return "4.1" if any("memtable" in row for row in tables) else "4.0"


def _by_table(rows: Iterable[SchemaRow]) -> Mapping[tuple[str, str], list[SchemaRow]]:
    grouped: dict[tuple[str, str], list[SchemaRow]] = {}
    for row in rows:
        grouped.setdefault((row["keyspace_name"], row["table_name"]), []).append(row)
    return grouped


def _user_types(rows: Iterable[SchemaRow]) -> Mapping[str, UserTypes]:
    grouped: dict[str, dict[str, UserTypeDefinition]] = {}
    for row in rows:
        definition = UserTypeDefinition(row["type_name"], tuple(row["field_names"]), tuple(row["field_types"]))
        grouped.setdefault(row["keyspace_name"], {})[definition.name] = definition
    return {keyspace: UserTypes(definitions) for keyspace, definitions in grouped.items()}


def _table(
    row: SchemaRow,
    name: str,
    columns: Iterable[SchemaRow],
    dropped: tuple[DroppedColumn, ...],
    user_types: UserTypes,
) -> Table:
    kinds: dict[ColumnKind, list[Column]] = {kind: [] for kind in ColumnKind}
    for column_row in columns:
        column = _column(column_row, user_types)
        kinds[column.kind].append(column)
    flags = row.get("flags")
    return Table(
        keyspace=row["keyspace_name"],
        name=name,
        id=_id(row),
        partition_key=_in_key_order(kinds[ColumnKind.PARTITION_KEY], at_least=1),
        clustering=_in_key_order(kinds[ColumnKind.CLUSTERING]),
        static=tuple(sorted(kinds[ColumnKind.STATIC], key=_name_bytes)),
        regular=tuple(sorted(kinds[ColumnKind.REGULAR], key=_name_bytes)),
        dropped=dropped,
        cdc=bool(row.get("cdc")),
        flags=frozenset({"compound"} if flags is None else flags),
    )


def _column(row: SchemaRow, user_types: UserTypes) -> Column:
    name = row["column_name"]
    name_bytes = row.get("column_name_bytes")
    return Column(
        name=name,
        name_bytes=name.encode() if name_bytes is None else bytes(name_bytes),
        kind=ColumnKind(row.get("kind") or "regular"),
        type=_parsed(name, row["type"], user_types),
        position=row.get("position", -1),
        descending=row.get("clustering_order") == "desc",
    )


def _parsed(name: str, text: str, user_types: UserTypes) -> CqlType:
    try:
        return parse_type(text, user_types)
    except (TypeSyntaxError, RecursionError) as error:
        raise TypeSyntaxError(f"column {name[:100]}: {_reason(error)}") from None


def _dropped(
    rows: Iterable[SchemaRow],
    keyspace: str,
    user_types: UserTypes,
    problems: list[Problem],
) -> tuple[DroppedColumn, ...]:
    """Dropped columns sorted by name bytes; one that is not understood becomes a problem of its own."""
    dropped: list[DroppedColumn] = []
    for row in rows:
        try:
            dropped.append(DroppedColumn(_column(row, user_types), _milliseconds(row["dropped_time"]) * 1000))
        except (TypeSyntaxError, KeyError, ValueError, TypeError) as error:
            table = f"{keyspace}.{row['table_name']}"
            problems.append(Problem(table, None, f"dropped column left out: {_reason(error)}"))
    return tuple(sorted(dropped, key=lambda item: item.column.name_bytes))


def _in_key_order(columns: list[Column], at_least: int = 0) -> tuple[Column, ...]:
    ordered = sorted(columns, key=lambda column: column.position)
    positions = [column.position for column in ordered]
    if len(ordered) < at_least or positions != list(range(len(ordered))):
        raise ValueError(f"key columns at positions {positions}: rows of system_schema.columns are missing")
    return tuple(ordered)


def _name_bytes(column: Column) -> bytes:
    return column.name_bytes


def _milliseconds(time: int | datetime) -> int:
    if not isinstance(time, datetime):
        return int(time)
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND


def _id(row: SchemaRow) -> UUID:
    table_id = row["id"]
    return table_id if isinstance(table_id, UUID) else UUID(table_id)


def _id_or_none(row: SchemaRow) -> UUID | None:
    try:
        return _id(row)
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def schema_row_from_json(row: Mapping[str, Any]) -> SchemaRow:
    """A row as it stands in a JSON value: blobs "0x" and hex digits, ids their text; see `read_schema_file`."""
    converted = dict(row)
    for name, convert in _CONVERTED.items():
        if isinstance(value := converted.get(name), str):
            converted[name] = convert(value)
    return converted


def schema_row_to_json(row: SchemaRow) -> dict[str, Any]:
    """The way back: whatever cassandra-driver gives for a column of `system_schema`, as JSON has it."""
    return {name: _to_json(value) for name, value in row.items()}


def _to_json(value: Any) -> Any:
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return "0x" + bytes(value).hex()
    if isinstance(value, UUID | datetime):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    return sorted(value) if isinstance(value, set | frozenset) else list(value)


_CONVERTED: Final[Mapping[str, Callable[[str], Any]]] = {
    "column_name_bytes": lambda text: bytes.fromhex(text.removeprefix("0x")),
    "id": UUID,
    "dropped_time": datetime.fromisoformat,
}


def _reason(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error) or type(error).__name__
