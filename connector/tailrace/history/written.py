"""What a mutation of `system_schema` writes: its rows, and which tables it says all about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tailrace.commitlog.model import Mutation, PartitionUpdate, Row
from tailrace_schemas.errors import CorruptError

RowKey = tuple[str, tuple[str, ...]]
"""A table of `system_schema`, and a row's clustering values there."""

TABLES: Final = ("tables", "views", "columns", "dropped_columns", "types")
"""The tables of `system_schema` whose rows define something; others are passed over."""


def rows_of(update: PartitionUpdate) -> Iterator[tuple[RowKey, Row]]:
    """Rows with their keys; ranges are not among them. Raises CorruptError for a name that is no text."""
    for item in update.items:
        if isinstance(item, Row):
            yield (update.table.name, tuple(text_of(value) for value in item.clustering)), item


def text_of(value: bytes | None) -> str:
    """A name. Raises CorruptError."""
    try:
        return (value or b"").decode()
    except UnicodeDecodeError:
        raise CorruptError(f"system_schema: a name that is no text: {value!r}") from None


@dataclass(frozen=True, slots=True)
class CompleteTable:
    """A table of which a mutation says all, as far as the mutation itself shows.

    `keys` are those of its rows, `written` the newest write time of their cells.
    """

    id: bytes
    keys: frozenset[RowKey]
    written: int


RowsByTable = Mapping[str, Sequence[tuple[RowKey, Row]]]
"""The rows that a mutation writes of each table or view, by its name."""


def rows_by_table_of(mutation: Mutation) -> RowsByTable:
    """The rows of a mutation by table, but for user types. A node may send its whole schema, thousands of tables."""
    by_table: dict[str, list[tuple[RowKey, Row]]] = {}
    for update in mutation.updates:
        if update.table.name in TABLES and update.table.name != "types":
            for key, row in rows_of(update):
                by_table.setdefault(key[1][0], []).append((key, row))
    return by_table


def complete_table(rows: Iterable[tuple[RowKey, Row]]) -> CompleteTable | None:
    """What a mutation's rows say of their table, if that is all about it.

    Its row has an id then, its key is there, and no column goes. CREATE does, and a whole schema sent by another node.
    A RENAME has a key column too, but deletes one.
    """
    id: bytes | None = None
    keyed, keys, times = False, set[RowKey](), list[int]()
    for key, row in rows:
        keys.add(key)
        times += [cell.written for cell in row.cells]
        cells = {cell.column.name: cell.value for cell in row.cells}
        if key[0] in ("tables", "views"):
            id = cells.get("id") or id
        elif key[0] == "columns" and not cells:
            return None
        elif key[0] == "columns":
            keyed |= cells.get("kind") == b"partition_key"
    return CompleteTable(id, frozenset(keys), max(times)) if id is not None and keyed else None
