"""What a reader is to see of columns: some not at all, some masked, hashed, or under another name. Pure.

A masked change merges as the change itself does: write times, deletions and markers stay; so tables made of masked
changes are the masked tables. Token, digest and source are those of the change as it was written.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from tailrace_schemas.change import Cell, Change, ColumnDeletion, Op
from tailrace_schemas.cql.order import BY_BYTES, sortable
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import join_key, split_key
from tailrace_schemas.errors import DecodeError, SettingsError
from tailrace_schemas.table import Column, ColumnKind, DroppedColumn, Table, columns_by_name

MASK: Final = b"***"
"""What stands for every value of a masked column."""

_TEXT: Final = CqlType("text")

_Convert = Callable[[bytes], bytes]


class Way(StrEnum):
    """What becomes of a column. The values are what people write."""

    DROP = "drop"
    MASK = "mask"
    HASH = "hash"
    RENAME = "rename"


@dataclass(frozen=True, slots=True)
class Rule:
    """What becomes of the columns that a pattern of keyspace, table and column, with * and ?, matches.

    `name` is the new name of a RENAME.
    """

    pattern: tuple[str, str, str]
    way: Way
    name: str = ""

    @classmethod
    def parse(cls, pattern: str, text: str) -> Rule:
        """A rule as people write it: "shop.*.email" and "drop", "mask", "hash" or "rename NAME". Raises ValueError."""
        parts = pattern.split(".")
        if len(parts) != 3 or not all(parts):
            raise ValueError(f"{pattern}: must be keyspace.table.column, each with * and ? for any characters")
        word, _, name = text.strip().partition(" ")
        try:
            treatment = Way(word)
        except ValueError:
            raise ValueError(f'{pattern}: must be "drop", "mask", "hash" or "rename NAME", not {text!r}') from None
        if (treatment is Way.RENAME) != bool(name.strip()):
            raise ValueError(f'{pattern}: a new name comes behind "rename", and behind nothing else')
        return cls((parts[0], parts[1], parts[2]), treatment, name.strip())

    def matches(self, table: Table, column: Column) -> bool:
        """Whether it is about this column."""
        names = (table.keyspace, table.name, column.name)
        return all(fnmatchcase(name, pattern) for name, pattern in zip(names, self.pattern, strict=True))


@dataclass(frozen=True, slots=True)
class _Seen:
    """A column as it is seen, and what makes a cell's path and value of those that were written."""

    column: Column
    path: _Convert | None = None
    value: _Convert | None = None

    def cell(self, cell: Cell) -> Cell:
        path = cell.path if cell.path is None or self.path is None else self.path(cell.path)
        value = cell.value if cell.value is None or self.value is None else self.value(cell.value)
        return replace(cell, column=self.column, path=path, value=value)


@dataclass(frozen=True, slots=True)
class _Masked:
    """One definition of a table, masked. `columns` by name bytes: None for those that are not seen.

    `key` has, where any column of the partition key is hashed, the types before and after, and what makes each value.
    """

    source: Table
    table: Table
    columns: Mapping[bytes, _Seen | None]
    key: tuple[Sequence[CqlType], Sequence[CqlType], Sequence[_Convert | None]] | None


class Masks:
    """Masks changes by rules, of which the first that matches a column holds; `key` is the secret of hashes.

    A hash is HMAC-SHA-256 of Cassandra's bytes, in hexadecimal digits: equal values have equal ones, in every table.
    Of a set's elements whose equal values may have other bytes it is that of the form in which they compare.
    """

    def __init__(self, rules: Sequence[Rule], key: bytes = b"") -> None:
        self._rules = tuple(rules)
        self._key = key
        self._tables: dict[int, tuple[Table, _Masked | SettingsError]] = {}

    def __reduce__(self) -> tuple[Callable[..., Masks], tuple[tuple[Rule, ...], bytes]]:
        # Each of Spark's tasks is sent some. What it hands on keeps what it makes of a table by that one's identity, so
        # all tasks of a process show the same.
        return _of_process, (self._rules, self._key)

    def change(self, change: Change) -> Change | None:
        """The change as it is seen; None where nothing of it is.

        Raises SettingsError for a table of which a rule asks what cannot be, such as a key without a column.
        """
        masked = self._of(change.table)
        cells = tuple(
            masked_column.cell(cell)
            for cell in change.cells
            if (masked_column := masked.columns[cell.column.name_bytes])
        )
        deletions = tuple(
            ColumnDeletion(masked_column.column, deletion.deletion)
            for deletion in change.column_deletions
            if (masked_column := masked.columns[deletion.column.name_bytes])
        )
        says_nothing = not (cells or deletions or change.marker or change.deletion)
        if says_nothing and change.op is not Op.TRUNCATE:
            return None
        key = change.key if change.key is None or masked.key is None else _hashed_key(change.key, *masked.key)
        return replace(change, table=masked.table, key=key, cells=cells, column_deletions=deletions)

    def table(self, table: Table) -> Table:
        """The table as its changes show it. Raises SettingsError as `change` does."""
        return self._of(table).table

    def check(self, table: Table) -> None:
        """Raise SettingsError where a rule asks of the table what cannot be."""
        self._of(table)

    def unmatched(self, tables: Sequence[Table]) -> list[str]:
        """The patterns that match no column of these tables, the dropped ones included."""
        return [
            ".".join(rule.pattern)
            for rule in self._rules
            if not any(
                rule.matches(table, column)
                for table in tables
                for column in (*table.key, *columns_by_name(table).values())
            )
        ]

    def _of(self, table: Table) -> _Masked:
        """Tables are compared by identity: to compare them takes longer than to mask a change."""
        if id(table) not in self._tables:
            self._tables[id(table)] = table, self._tried(table)  # which keeps the table, and so its id
        masked = self._tables[id(table)][1]
        if isinstance(masked, SettingsError):
            raise masked
        return masked

    def _tried(self, table: Table) -> _Masked | SettingsError:
        try:
            return self._masked(table)
        except SettingsError as error:
            return error

    def _masked(self, table: Table) -> _Masked:
        columns = {name: self._seen(table, column) for name, column in columns_by_name(table).items()}
        names_before = {
            masked_column.column.name_bytes: column.name_bytes
            for column in table.columns
            if (masked_column := columns[column.name_bytes]) is not None
        }
        for name, masked_column in columns.items():
            # A dropped column whose name another one has now: nothing of it is that one's, its drop neither.
            if masked_column is not None and names_before.get(masked_column.column.name_bytes, name) != name:
                columns[name] = None
        keys = [self._seen_key(table, column) for column in table.key]
        split = len(table.partition_key)
        visible = Table(
            keyspace=table.keyspace,
            name=table.name,
            id=table.id,
            partition_key=tuple(masked_column.column for masked_column in keys[:split]),
            clustering=tuple(masked_column.column for masked_column in keys[split:]),
            static=_kept(table.static, columns),
            regular=_kept(table.regular, columns),
            dropped=tuple(
                DroppedColumn(masked_column.column, dropped.dropped_at)
                for dropped in table.dropped
                if columns[dropped.column.name_bytes] is not None
                and (masked_column := self._seen(table, dropped.column)) is not None
            ),
            cdc=table.cdc,
            flags=table.flags,
        )
        names = [column.name for column in (*visible.key, *visible.columns)]
        if twice := {name for name in names if names.count(name) > 1}:
            raise SettingsError(f"stream.columns: {table} would have two columns called {', '.join(sorted(twice))}")
        key = None
        if any(masked_column.value for masked_column in keys[:split]):
            key = (
                [column.type for column in table.partition_key],
                [column.type for column in visible.partition_key],
                [masked_column.value for masked_column in keys[:split]],
            )
        return _Masked(table, visible, columns, key)

    def _rule(self, table: Table, column: Column) -> Rule | None:
        return next((rule for rule in self._rules if rule.matches(table, column)), None)

    def _seen_key(self, table: Table, column: Column) -> _Seen:
        rule = self._rule(table, column)
        if rule is None:
            return _Seen(column)
        if rule.way is Way.RENAME:
            return _Seen(_renamed(column, rule.name))
        if rule.way is Way.HASH and column.kind is ColumnKind.PARTITION_KEY:
            return _Seen(replace(column, type=_TEXT), value=self._hash)
        reason = "it orders rows, and deletions of ranges name it" if rule.way is Way.HASH else "it identifies rows"
        raise SettingsError(f"stream.columns: {rule.way} of {table}.{column.name}: {reason}; rename it, or leave it")

    def _seen(self, table: Table, column: Column) -> _Seen | None:
        rule = self._rule(table, column)
        if rule is None:
            return _Seen(column)
        if rule.way is Way.DROP:
            return None
        if rule.way is Way.RENAME:
            return _Seen(_renamed(column, rule.name))
        convert = self._hash if rule.way is Way.HASH else _mask
        kind, args = column.type.kind, column.type.args
        if not column.type.multicell and kind != "counter":
            return _Seen(replace(column, type=_TEXT), value=convert)
        if kind == "list":
            return _Seen(replace(column, type=CqlType("list", (_TEXT,))), value=convert)
        if kind == "map":
            return _Seen(replace(column, type=CqlType("map", (args[0], _TEXT))), value=convert)
        if kind == "set" and rule.way is Way.HASH:
            return _Seen(replace(column, type=CqlType("set", (_TEXT,))), path=self._element_hash(args[0]))
        rule_words = f"{rule.way} of {table}.{column.name}"
        raise SettingsError(
            f"stream.columns: {rule_words}: it is a {column.type}, of which changes tell parts; drop it"
        )

    def _element_hash(self, element: CqlType) -> _Convert:
        """What hashes a set's elements, so that those have one hash that Cassandra takes for one element.

        A removal may name an element by other bytes than it was added by, such as 1.00 for 1.0.
        """
        if element.kind in BY_BYTES:
            return self._hash

        def hashed(path: bytes) -> bytes:
            try:
                return self._hash(sortable(element, path, False))
            except DecodeError:  # bytes that are no value are equal to no others
                return self._hash(path)

        return hashed

    def _hash(self, value: bytes) -> bytes:
        return hmac.digest(self._key, value, "sha256").hex().encode()


@lru_cache(maxsize=256)
def _of_process(rules: tuple[Rule, ...], key: bytes) -> Masks:
    return Masks(rules, key)


def _mask(value: bytes) -> bytes:  # noqa: ARG001 - whatever it is
    return MASK


def _renamed(column: Column, name: str) -> Column:
    return replace(column, name=name, name_bytes=name.encode())


def _kept(columns: Sequence[Column], masked: Mapping[bytes, _Seen | None]) -> tuple[Column, ...]:
    """Those that are seen, sorted by name bytes as a Table has them."""
    visible = [masked_column.column for column in columns if (masked_column := masked[column.name_bytes]) is not None]
    return tuple(sorted(visible, key=lambda column: column.name_bytes))


def _hashed_key(
    key: bytes, before: Sequence[CqlType], after: Sequence[CqlType], converts: Sequence[_Convert | None]
) -> bytes:
    parts = zip(split_key(before, key), converts, strict=True)
    return join_key(after, [value if convert is None else convert(value) for value, convert in parts])
