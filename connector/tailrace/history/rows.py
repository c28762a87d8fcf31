"""The rows of `system_schema` as Cassandra merges them, from its own mutations in the log; and what they define."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, TypeVar

from tailrace.commitlog.model import Mutation, Row
from tailrace.history.cells import NEVER, Deletions, SchemaCells, deletions_of, merged
from tailrace.history.written import (
    TABLES,
    CompleteTable,
    RowKey,
    RowsByTable,
    complete_table,
    rows_by_table_of,
    rows_of,
    text_of,
)
from tailrace_schemas.change import Cell
from tailrace_schemas.cql.types import user_types_in
from tailrace_schemas.definitions import Definitions, Problem, SchemaRow, tables_from_rows, view_with_flags
from tailrace_schemas.table import Table, sharing

Name = tuple[str, str]
"""Keyspace, and table or view."""

_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "tables": ("table_name",),
    "views": ("view_name",),
    "columns": ("table_name", "column_name"),
    "dropped_columns": ("table_name", "column_name"),
    "types": ("type_name",),
}
_KEY_KINDS: Final = ("partition_key", "clustering")
_Rows = Mapping[RowKey, SchemaCells]
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class KeyedRow:
    """A row of `system_schema` as a value: where it stands, its columns as cassandra-driver gives them, its time."""

    table: str
    row: SchemaRow
    written: int = 0

    @property
    def owner(self) -> Name:
        """The table that the row belongs to; of a type's row, the type."""
        return self.row["keyspace_name"], self.row[_KEYS[self.table][0]]

    @property
    def key(self) -> RowKey:
        """Where it stands in its keyspace."""
        return self.table, tuple(self.row[name] for name in _KEYS[self.table])


@dataclass(frozen=True, slots=True)
class _Base:
    """What was known of a table from elsewhere than the log: `written` is the newest write time in it.

    One that was `read` from the cluster holds only until the log says more: see SchemaRows. Once it is joined to the
    log's rows only its write time is left. Of a name whose table was dropped, that is the time up to which all is gone.
    """

    rows: tuple[KeyedRow, ...]
    written: int
    read: bool


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """What a mutation of `system_schema` did: definitions that are new or other, tables that are gone, and problems."""

    defined: tuple[Table, ...] = ()
    dropped: tuple[Table, ...] = ()
    problems: tuple[Problem, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.defined or self.dropped)


@dataclass(frozen=True, slots=True)
class _Keyspace:
    """One partition of every table of `system_schema`: its rows by table, those of types apart."""

    tables: Mapping[str, _Rows] = field(default_factory=dict)
    types: _Rows = field(default_factory=dict)
    deletions: Mapping[str, Deletions] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SchemaRows:
    """Rows by keyspace and table, and the definitions that they make; immutable, a mutation gives a new value.

    Beside what the log said there are bases: rows known from elsewhere, joined to the log's when it first touches
    their table. What is as of the log's place holds all that was written up to its time: nothing of the log counts
    that is not newer. What was read of the cluster is later than the log's place: all of the log counts. A mutation
    that creates a table says all about it. The log starts with it where the base was read, or is another table's
    of that name (the DROP was missed). Before it may stand what the log says of an earlier table of that name. Of that
    one nothing is known, and it changes nothing.
    """

    keyspaces: Mapping[str, _Keyspace] = field(default_factory=lambda: MappingProxyType({}))
    definitions: Mapping[Name, Table] = field(default_factory=lambda: MappingProxyType({}))
    bases: Mapping[Name, _Base] = field(default_factory=lambda: MappingProxyType({}))
    joined: Mapping[Name, _Base] = field(default_factory=lambda: MappingProxyType({}))

    def with_base(self, rows: Iterable[KeyedRow], *, read: bool, newer: bool = False) -> SchemaRows:
        """With rows known from elsewhere, for the tables and types of which nothing is known yet.

        `read`: from the cluster as it is now. Otherwise they are as of the log's place: from our own history, or read
        when nothing had changed since. `newer`: types that are known give way.
        """
        grouped: dict[Name, list[KeyedRow]] = {}
        types: dict[str, dict[RowKey, SchemaCells]] = {}
        for row in rows:
            if row.table == "types":
                written = NEVER + 1 if read or newer else row.written
                types.setdefault(row.owner[0], {})[row.key] = SchemaCells.of_row(row.row, written)
            else:
                grouped.setdefault(row.owner, []).append(row)
        bases = {
            name: _Base(tuple(owned), max(row.written for row in owned), read)
            for name, owned in grouped.items()
            if name not in self.definitions and name not in self.bases
        }
        keyspaces = dict(self.keyspaces)
        for keyspace, found_types in types.items():
            existing = self.keyspace(keyspace)
            timed = {key: cells for key, cells in existing.types.items() if read or cells.written > NEVER + 1}
            merged_types = {**existing.types, **found_types, **({} if newer else timed)}
            keyspaces[keyspace] = replace(existing, types=merged_types)
        with_rows = replace(self, keyspaces=_proxy(keyspaces), bases=_proxy({**self.bases, **bases}))
        definitions = definitions_of(row for name in bases for row in with_rows.rows_and_types(name))
        owned = {(table.keyspace, table.name): table for table in definitions.tables}
        return replace(with_rows, definitions=_proxy({**self.definitions, **owned}))

    def as_read(self, names: Collection[Name], *, read: bool = True) -> SchemaRows:
        """With the bases of these tables taken for reads of the cluster, of which all of the log counts; or not."""
        marked = {name: replace(base, read=read) if name in names else base for name, base in self.bases.items()}
        return replace(self, bases=_proxy(marked))

    def without(self, name: Name) -> SchemaRows:
        """Knowing nothing of a table: for a base that is to take its place."""
        return replace(_emptied(self, name), definitions=_without(self.definitions, name))

    def gone(self, name: Name, until: int) -> SchemaRows:
        """With all of a name gone that was written up to a time."""
        return replace(self, joined=_proxy({**self.joined, name: _Base((), until, False)}))

    def apply(self, mutation: Mutation) -> tuple[SchemaRows, SchemaChange]:
        """The rows after a mutation of `system_schema` (one keyspace's), and what that changed.

        Where rows make no definition, perhaps because those from before our history are missing, the last one stays
        and the problem is reported. Raises DecodeError for values that are none.
        """
        keyspace = text_of(mutation.updates[0].key)
        touched, has_types = set[str](), False
        for update in mutation.updates:
            if update.table.name == "types":
                has_types = True
            elif update.table.name in TABLES:
                touched |= {key[1][0] for key, _ in rows_of(update)}
                if deletions_of(update):
                    touched |= self.names(keyspace)
        rows, rows_by_table = self, rows_by_table_of(mutation)
        for owner in sorted(touched):
            name, written_rows = (keyspace, owner), rows_by_table.get(owner, ())
            if (until := _of_an_earlier_table(rows, name, mutation, written_rows)) is not None:
                rows = rows.gone(name, max(until, rows.logged(name)))
                touched.discard(owner)
            else:
                rows = _joined(rows, name, written_rows)
        rows = _merged(rows, keyspace, mutation, touched)
        if has_types:
            touched |= rows.names(keyspace)
        return _redefined(rows, keyspace, touched)

    def replaced(self, mutation: Mutation) -> tuple[Name, ...]:
        """The names of tables that have given way to others by DDL that was missed, as the next mutation shows.

        Raises DecodeError.
        """
        keyspace = text_of(mutation.updates[0].key)
        named = (((keyspace, owner), written_rows) for owner, written_rows in rows_by_table_of(mutation).items())
        return tuple(
            name
            for name, written_rows in named
            if (id := _another_id(self, written_rows, name)) is not None and id.written > self.written(name)
        )

    def creates(self, rows_by_table: RowsByTable, name: Name) -> bool:
        """Whether a mutation that is applied next creates a table of which only a later read was known so far."""
        counted = self.bases.get(name) or self.joined.get(name)
        return counted is not None and counted.read and _created(self, rows_by_table.get(name[1], ()), name) is not None

    def rows(self, name: Name) -> tuple[KeyedRow, ...]:
        """The rows that make a table's definition, its user types' included; enough to make it again."""
        used = _used_types(self.definitions.get(name))
        candidates = self.rows_and_types(name)
        return tuple(row for row in candidates if row.table != "types" or row.row["type_name"] in used)

    def rows_and_types(self, name: Name) -> tuple[KeyedRow, ...]:
        """The rows of a table, and of all of its keyspace's user types."""
        table_rows = self.table_rows(name)
        columns = [row.row for row in table_rows if row.table == "columns"]
        for index, row in enumerate(table_rows):
            if row.table == "views":
                base_rows = self.table_rows((name[0], row.row.get("base_table_name") or ""))
                base = [base_row.row for base_row in base_rows if base_row.table == "columns"]
                table_rows[index] = replace(row, row=view_with_flags(row.row, columns, base))
        return (*table_rows, *self.types(name[0]))

    def types(self, keyspace: str) -> Iterator[KeyedRow]:
        """The rows of a keyspace's user types."""
        return _live(keyspace, self.keyspace(keyspace).types)

    def table_rows(self, name: Name) -> list[KeyedRow]:
        """The rows of a table, without its types'."""
        base = self.bases.get(name)
        return list(_live(name[0], self.keyspace(name[0]).tables.get(name[1], {})) if base is None else base.rows)

    def written(self, name: Name) -> int:
        """The newest write time that is known of a table's rows, its columns' included; NEVER for an unknown one."""
        base = self.bases.get(name)
        return max(self.logged(name), NEVER if base is None else base.written)

    def logged(self, name: Name) -> int:
        """The same, up to the log's place; NEVER where all that is known of a table was read of the cluster."""
        rows = self.keyspace(name[0]).tables.get(name[1], {})
        # What was read is later than the log's place: DDL of its time may still come, or have stood in a hole.
        bases = (base for base in (self.bases.get(name), self.joined.get(name)) if base is not None and not base.read)
        return max([NEVER, *(base.written for base in bases), *(cells.written for cells in rows.values())])

    def keyspace(self, name: str) -> _Keyspace:
        """What the log said of a keyspace."""
        return self.keyspaces.get(name, _NOTHING)

    def names(self, keyspace: str) -> frozenset[str]:
        """The tables and views that are known in a keyspace."""
        return frozenset(self.keyspace(keyspace).tables) | {table for name, table in self.bases if name == keyspace}


_NOTHING: Final = _Keyspace()


def _with_tables(rows: SchemaRows, keyspace: str, tables: Mapping[str, _Rows]) -> SchemaRows:
    changed = replace(rows.keyspace(keyspace), tables=tables)
    return replace(rows, keyspaces=_proxy({**rows.keyspaces, keyspace: changed}))


def _emptied(rows: SchemaRows, name: Name) -> SchemaRows:
    changed = _with_tables(rows, name[0], _without(rows.keyspace(name[0]).tables, name[1]))
    return replace(changed, bases=_without(rows.bases, name), joined=_without(rows.joined, name))


def _joined(rows: SchemaRows, name: Name, written_rows: Iterable[tuple[RowKey, Row]]) -> SchemaRows:
    """With the base of a table, if there is one that still counts, made rows.

    Nothing of another table is left whose name a new one takes: its DROP was missed.
    """
    base = rows.bases.get(name)
    counted = base or rows.joined.get(name)
    definition = rows.definitions.get(name)
    created = None if counted is None and definition is None else _created(rows, written_rows, name)
    if created is not None and counted is not None and counted.read:
        # The definition is news, also where it is what was read. Of an earlier table, copies may still come.
        return rows.without(name).gone(name, rows.logged(name))
    if created is not None and (definition is None or created.id != definition.id.bytes):
        return _emptied(rows, name).gone(name, rows.logged(name))
    if base is None:
        return rows
    keyed = _key_columns(written_rows) if base.read else {}
    base_rows = (row for row in base.rows if keyed.get(_key_place(row), row.key[1]) == row.key[1])
    cells = {row.key: SchemaCells.of_row(row.row) for row in base_rows}
    changed = _with_tables(rows, name[0], {**rows.keyspace(name[0]).tables, name[1]: cells})
    joined = _proxy({**rows.joined, name: replace(base, rows=())})
    return replace(changed, bases=_without(rows.bases, name), joined=joined)


def _merged(rows: SchemaRows, name: str, mutation: Mutation, touched: Iterable[str]) -> SchemaRows:
    """With the mutation's cells and deletions, in the tables that it touches and in the types."""
    keyspace = rows.keyspace(name)
    # Types have no table, hence no name of one; nothing is known of them before the log that could stand above it.
    tables = {owner: dict(keyspace.tables.get(owner, {})) for owner in touched} | {"": dict(keyspace.types)}
    joined = {owner: rows.joined[name, owner] for owner in tables if (name, owner) in rows.joined}
    floors = {owner: base.written for owner, base in joined.items() if not base.read}
    deletions = dict(keyspace.deletions)
    for update in mutation.updates:
        table = update.table.name
        if table not in TABLES:
            continue
        own_deletions = deletions_of(update)
        deleted = deletions[table] = deletions.get(table, Deletions()).joined(own_deletions)
        # Of what is known, earlier deletions took theirs when they came. What was read since is not theirs.
        for owner, by_key in tables.items():
            for key in [key for key in by_key if key[0] == table]:
                by_key[key] = by_key[key].deleted_by(own_deletions.newest(key[1]), floors.get(owner, NEVER))
        for key, row in rows_of(update):
            owner = "" if table == "types" else key[1][0]
            if owner in tables:
                by_key = tables[owner]
                by_key[key] = merged(by_key.get(key), row, deleted.newest(key[1]), floors.get(owner, NEVER))
    types = tables.pop("")
    # Of a table's tombstones the time is left that they have in common: a stale node may send what is older.
    live = {owner: by_key for owner, by_key in tables.items() if any(cells.live for cells in by_key.values())}
    untouched = {owner: by_key for owner, by_key in keyspace.tables.items() if owner not in tables}
    changed = _Keyspace({**untouched, **live}, types, deletions)
    merged_rows = replace(rows, keyspaces=_proxy({**rows.keyspaces, name: changed}))
    for owner in tables.keys() & keyspace.tables.keys() - live.keys():
        until = max(cells.deleted for cells in tables[owner].values())
        merged_rows = merged_rows.gone((name, owner), max(until, floors.get(owner, NEVER)))
    return merged_rows


def _redefined(rows: SchemaRows, keyspace: str, touched: Iterable[str]) -> tuple[SchemaRows, SchemaChange]:
    """With the definitions of these tables, and how they differ from those before."""
    names = [(keyspace, owner) for owner in sorted(touched)]
    schema_rows = {name: rows.rows_and_types(name) for name in names}
    definitions = definitions_of(row for table_rows in schema_rows.values() for row in table_rows)
    present = {(table.keyspace, table.name): table for table in definitions.tables}
    current = dict(rows.definitions)
    defined, dropped = list[Table](), list[Table]()
    for name in names:
        previous, now = current.get(name), present.get(name)
        exists = any(row.table in ("tables", "views") for row in schema_rows[name])
        if previous is not None and (not exists or (now is not None and now.id != previous.id)):
            dropped.append(current.pop(name))
        if now is not None:
            current[name] = now = now if previous is None else sharing(previous, now)
            if now != previous:
                defined.append(now)
    change = SchemaChange(tuple(defined), tuple(dropped), definitions.problems)
    return replace(rows, definitions=_proxy(current)), change


def definitions_of(rows: Iterable[KeyedRow]) -> Definitions:
    """What rows define; where one stands there twice, the later counts."""
    grouped: dict[str, dict[tuple[str, RowKey], SchemaRow]] = {table: {} for table in TABLES}
    for row in rows:
        grouped[row.table][row.row["keyspace_name"], row.key] = row.row
    return tables_from_rows(**{table: keyed_rows.values() for table, keyed_rows in grouped.items()})


def _live(keyspace: str, rows: _Rows) -> Iterator[KeyedRow]:
    for (table, values), cells in rows.items():
        if cells.live:
            key = dict(zip(_KEYS[table], values, strict=True))
            yield KeyedRow(table, {"keyspace_name": keyspace, **key, **cells.values()}, cells.written)


def _created(rows: SchemaRows, written_rows: Iterable[tuple[RowKey, Row]], name: Name) -> CompleteTable | None:
    """The table that a mutation of these rows creates, as far as is known by then; None where it creates none.

    A known table that has an older column, which is not in the mutation, was there before. From 5.0 on a mask, or a
    constraint, writes the row of its column again, also that of the partition key. And what is no newer than the log's
    last word is a copy: a node sends its whole schema, also where that is old.
    """
    statement, definition = complete_table(written_rows), rows.definitions.get(name)
    if statement is None or rows.logged(name) >= statement.written:
        return None
    if definition is None or definition.id.bytes != statement.id:
        return statement
    other_columns = (row for row in rows.table_rows(name) if row.table == "columns" and row.key not in statement.keys)
    return None if any(row.written < statement.written for row in other_columns) else statement


def _of_an_earlier_table(
    rows: SchemaRows, name: Name, mutation: Mutation, written_rows: Iterable[tuple[RowKey, Row]]
) -> int | None:
    """The write time of a mutation of a table that had a name before the one that was read of the cluster; else None.

    It is older than what was read. It names another id, and creates no table. Or it drops one: the row that was read
    would be gone.
    """
    base = rows.bases.get(name)
    table_keys = _own_keys(name)
    known_row = (
        None if base is None or not base.read else next((row for row in base.rows if row.key in table_keys), None)
    )
    if known_row is None:
        return None
    if (id := _another_id(rows, written_rows, name)) is not None:
        return id.written if id.written < rows.written(name) else None
    own_rows = [row for key, row in written_rows if key in table_keys]
    if any(row.cells for row in own_rows):
        return None
    updates = (update for update in mutation.updates if update.table.name in ("tables", "views"))
    dropped = [deletions_of(update).newest((name[1],)) for update in updates]
    dropped += [row.deletion.written for row in own_rows if row.deletion is not None]
    until = max(dropped, default=NEVER)
    return until if NEVER < until < known_row.written else None


def _another_id(rows: SchemaRows, written_rows: Iterable[tuple[RowKey, Row]], name: Name) -> Cell | None:
    """The id of a table, where it is not the one that is known by a name, and the mutation does not create it."""
    table_keys, definition = _own_keys(name), rows.definitions.get(name)
    cells = (cell for key, row in written_rows if key in table_keys for cell in row.cells)
    id = next((cell for cell in cells if cell.column.name == "id" and cell.value is not None), None)
    if id is None or definition is None or id.value == definition.id.bytes:
        return None
    return id if _created(rows, written_rows, name) is None else None


def _own_keys(name: Name) -> frozenset[RowKey]:
    """The row of the table or view itself."""
    return frozenset({("tables", (name[1],)), ("views", (name[1],))})


_KeyPlace = tuple[str, int]


def _key_place(row: KeyedRow) -> _KeyPlace | None:
    """A key column's kind and position; None for another row."""
    kind = row.row.get("kind") if row.table == "columns" else None
    return (kind, row.row["position"]) if kind in _KEY_KINDS else None


def _key_columns(written_rows: Iterable[tuple[RowKey, Row]]) -> dict[_KeyPlace | None, tuple[str, ...]]:
    """The key columns that a mutation writes, by their places.

    A later read has other names there where they were renamed again since.
    """
    columns: dict[_KeyPlace | None, tuple[str, ...]] = {}
    for key, row in written_rows:
        cells = {cell.column.name: cell.value for cell in row.cells} if key[0] == "columns" else {}
        kind = (cells.get("kind") or b"").decode(errors="replace")
        if kind in _KEY_KINDS:
            columns[kind, int.from_bytes(cells.get("position") or b"", "big", signed=True)] = key[1]
    return columns


def _used_types(table: Table | None) -> frozenset[str]:
    """Names of the user types of a table, those inside of others included."""
    if table is None:
        return frozenset()
    columns = (*table.key, *table.columns, *(dropped.column for dropped in table.dropped))
    return frozenset(used.name for used in user_types_in(column.type for column in columns))


def _proxy(mapping: Mapping[_Key, _Value]) -> Mapping[_Key, _Value]:
    return MappingProxyType(dict(mapping))


def _without(mapping: Mapping[_Key, _Value], key: _Key) -> Mapping[_Key, _Value]:
    return _proxy({name: value for name, value in mapping.items() if name != key})
