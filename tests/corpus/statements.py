"""Random statements of every kind over the tables of a keyspace, few keys, so that they meet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import Final

from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.table import Column, ColumnKind, Table
from tests.corpus.kinds import EVERY_KIND, Kinds
from tests.corpus.literals import empty, literal
from tests.corpus.release import Dialect

Pools = dict[tuple[ColumnKind, int, str], list[str]]
"""The values that key columns of a kind, position and type have."""

_SECOND: Final = 1_000_000
_LONG_KEY: Final = 200
_FAR_TTLS: Final = ("10000", "99999", "300000000")
_NEAR_TTLS: Final = ("1", "2", "2")
_TIED_TTLS: Final = (*(5 * ("{until+10000}",)), "{until+10001}", "10000")
"""To be chosen when the statement is executed, so that what it writes expires so many seconds behind the beginning:
what is written at several seconds then expires at one, and has other TTLs."""
_TIED: Final = (0, 1, 2, 3, 5)
"""Microseconds. Neighbours, since an overwrite of a collection deletes a microsecond before what it writes."""
_NOT_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})
_DELETIONS: Final = ("cells", "row", "rows", "range", "partition")


class Statements:
    """Makes statements; `now` is microseconds since the epoch, before which explicit write times lie.

    With `ahead` also behind it. A column must not be dropped after that: reading a row with a cell that was written
    after its column was dropped, a node fails (Cell.Serializer.serialize, 5.0.9).
    """

    def __init__(
        self,
        random: Random,
        tables: Sequence[Table],
        dialect: Dialect,
        now: int,
        *,
        ahead: bool = False,
        kinds: Kinds = EVERY_KIND,
        pools: Pools | None = None,
    ) -> None:
        """`pools` are shared by those that are to write the same rows."""
        self._random = random
        self._dialect = dialect
        self._kinds = kinds
        # Few, so that writes meet at one microsecond.
        if kinds.tied:
            self._times = [now - 3600 * _SECOND + step for step in _TIED]
        else:
            self._times = [now + random.randrange(-3600, 600 if ahead else 0) * _SECOND for _ in range(10)]
            self._times += [1]
        # Not for deletions: where nothing is newer any more they end what they are of, and before 1970 they break the
        # data file that they are flushed to (DeletionTime.Serializer of sstable versions oa and pa).
        self._write_times = self._times if kinds.tied else [*self._times, -5, *([2**61] if ahead else [])]
        self._moments = count(1)
        self._timed = 0.0 if not kinds.times else 0.97 if kinds.tied else 0.3
        self._pools: Pools = {} if pools is None else pools
        self._keys = random.choice((4, 4, 8))  # with more of them many a row is written once
        self._items: dict[str, list[str]] = {}
        self._counters = [table for table in tables if table.is_counter]
        self._tables = [table for table in tables if not table.is_counter]

    def next(self) -> str:
        """One statement, of any kind."""
        kinds: tuple[tuple[Callable[[], str], int], ...] = (
            (lambda: self._insert(self._table(), self._using()), 20),
            (lambda: self._update(self._table(), self._using()), 30),
            (lambda: self._delete(self._table(), self._timestamp()), 16),
            (self._batch, 10),
            (self._conditional, 1 if self._kinds.tied else 8),  # at the clock's time: nothing that is tied is newer
            (self._count, 10 if self._counters else 0),
            (self._count_batch, 1 if self._counters else 0),
            (self._uncount, 2 if self._counters else 0),
            (self._truncate, 1 if self._kinds.truncations else 0),
        )
        return self._random.choices([make for make, _ in kinds], [weight for _, weight in kinds])[0]()

    def last_word(self) -> str:
        """A write to the first table, of which there must be one, that no node refuses."""
        return self._count() if self._counters else self._insert(self._tables[0], "")

    # -- what statements are made of

    def _table(self) -> Table:
        return self._random.choice(self._tables)

    def _often(self, chance: float) -> bool:
        return self._random.random() < chance

    def _timestamp(self) -> str:
        """TIMESTAMP or none, for deletions."""
        return f" USING TIMESTAMP {self._time(self._times)}" if self._often(self._timed) else ""

    def _time(self, times: Sequence[int]) -> int:
        return self._random.choice(times) + (next(self._moments) if self._kinds.apart else 0)

    def _using(self) -> str:
        """TIMESTAMP, TTL, both or none."""
        parts = [f"TIMESTAMP {self._time(self._write_times)}"] if self._often(self._timed) else []
        if not self._kinds.lasting and self._often(0.4 if self._kinds.tied else 0.2):
            far = ("600000000",) if self._dialect.far_expiry else ()
            near = _NEAR_TTLS if self._kinds.expiries else ()
            lasting = _TIED_TTLS if self._kinds.tied else (*_FAR_TTLS, *far)
            parts.append(f"TTL {self._random.choice((*near, *lasting))}")
        return f" USING {' AND '.join(parts)}" if parts else ""

    def _key(self, column: Column) -> str:
        """One of the few values that a key column has; columns of one type and place share them.

        The further back a column stands, the fewer: keys of several columns are to meet as those of one do.
        """
        found = self._pools.setdefault((column.kind, column.position, str(column.type)), [])
        while len(found) < self._keys:
            value = self._literal(column.type)
            if column.kind is ColumnKind.PARTITION_KEY and value in ("''", "0x"):
                continue  # "Key may not be empty"
            if len(value) > _LONG_KEY and not self._kinds.long_keys:
                continue
            found.append(value)
            nothing = empty(column.type, self._dialect)
            if nothing is not None and self._often(0.1) and column.kind is ColumnKind.CLUSTERING:
                found[-1] = nothing
        return self._random.choice(found[: max(self._keys - column.position, 2)])

    def _partition(self, table: Table) -> list[str]:
        return [f"{column.name} = {self._key(column)}" for column in table.partition_key]

    def _row(self, table: Table) -> str:
        return " AND ".join([*self._partition(table), *(f"{c.name} = {self._key(c)}" for c in table.clustering)])

    def _value(self, cql_type: CqlType) -> str:
        if self._often(0.08):
            return "null"
        nothing = empty(cql_type, self._dialect)
        if nothing is not None and self._often(0.05):
            return nothing
        return self._whole(cql_type)

    def _whole(self, cql_type: CqlType) -> str:
        """A value; a collection's elements and keys are often those that others have had."""
        if not cql_type.multicell or cql_type.kind == "udt" or self._often(0.1):
            return self._literal(cql_type)
        items = [self._item(cql_type.args[0]) for _ in range(self._random.randrange(4))]
        if cql_type.kind == "list":
            return f"[{', '.join(items)}]"
        if cql_type.kind == "map":
            items = [f"{key}: {literal(self._random, cql_type.args[1])}" for key in dict.fromkeys(items)]
        return f"{{{', '.join(items)}}}"

    def _literal(self, cql_type: CqlType) -> str:
        """Any value that may be one of a column."""
        value = literal(self._random, cql_type)
        while self._kinds.finite and value in _NOT_FINITE:
            value = literal(self._random, cql_type)
        return value

    def _item(self, cql_type: CqlType) -> str:
        """One of the few values that elements of this type have."""
        found = self._items.get(str(cql_type))
        if found is None:
            found = self._items[str(cql_type)] = [literal(self._random, cql_type) for _ in range(4)]
            if cql_type.kind == "decimal":
                found += ["1.5", "1.50", "1.500"]
        return self._random.choice(found)

    def _some(self, columns: Sequence[Column]) -> list[Column]:
        """A few of them, at times all or all but a few, at least one where there is one."""
        share = self._random.choice((0.1, 0.3, 0.5, 0.95, 1))
        return [column for column in columns if self._often(share)] or self._random.sample(
            columns, min(len(columns), 1)
        )

    # -- kinds of statements

    def _insert(self, table: Table, using: str, condition: str = "") -> str:
        if table.static and self._often(0.15):
            keys, columns = table.partition_key, self._some(table.static)
        else:
            keys, columns = table.key, [] if self._often(0.1) else self._some(table.columns)
            if "dense" in table.flags and self._often(0.3):
                keys, columns = keys[:-1], list(table.columns)  # its last clustering column is null
        values = {column.name: self._key(column) for column in keys}
        values.update({column.name: self._value(column.type) for column in columns})
        return f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join(values.values())}){condition}{using}"

    def _update(self, table: Table, using: str, condition: str = "") -> str:
        only_static = bool(table.static) and self._often(0.15)
        columns = self._some(table.static if only_static else table.columns)
        if not columns:
            return self._insert(table, using, condition and " IF NOT EXISTS")
        sets = ", ".join(self._assignment(column) for column in columns)
        only_static = only_static or all(column in table.static for column in columns)
        where = " AND ".join(self._partition(table)) if only_static else self._row(table)
        return f"UPDATE {table}{using} SET {sets} WHERE {where}{condition}"

    def _assignment(self, column: Column) -> str:
        name, kind, args = column.name, column.type.kind, column.type.args
        if not column.type.multicell or self._often(0.25):
            return f"{name} = {self._value(column.type)}"
        whole = self._whole(column.type)
        if kind == "list":
            index = f"{name}[{self._random.randrange(3)}] = {self._element(args[0])}"
            edits = (f"{name} = {name} + {whole}", f"{name} = {whole} + {name}", f"{name} = {name} - {whole}", index)
            return self._random.choices(edits, (3, 3, 2, 1))[0]
        if kind == "set":
            return f"{name} = {name} {self._random.choice('++-')} {whole}"
        if kind == "map":
            gone = self._whole(CqlType("set", (args[0],)))
            return self._random.choice((f"{name} = {name} + {whole}", f"{name} = {name} - {gone}", self._entry(column)))
        at = self._random.randrange(len(args))
        return f"{name}.{column.type.fields[at]} = {self._element(args[at])}"

    def _element(self, cql_type: CqlType) -> str:
        return "null" if self._often(0.2) else literal(self._random, cql_type)

    def _entry(self, column: Column) -> str:
        key, value = column.type.args
        return f"{column.name}[{self._item(key)}] = {self._element(value)}"

    def _delete(self, table: Table, using: str, condition: str = "") -> str:
        kind = self._random.choices(_DELETIONS, (12, 2, 1, 4, 1) if self._kinds.sparing else (6, 4, 2, 6, 1))[0]
        if (kind == "cells" and not table.columns) or (condition and kind != "cells"):
            kind = "row"
        what = ""
        where = self._row(table)
        if kind == "cells":
            columns = self._some(table.columns)
            what = ", ".join(self._deleted(column) for column in columns) + " "
            if all(column in table.static for column in columns):
                where = " AND ".join(self._partition(table))
        elif kind == "rows" and table.clustering:
            last = table.clustering[-1]
            values = ", ".join(self._key(last) for _ in range(2))
            prefix = [f"{column.name} = {self._key(column)}" for column in table.clustering[:-1]]
            where = " AND ".join([*self._partition(table), *prefix, f"{last.name} IN ({values})"])
        elif kind == "range" and table.clustering:
            where = " AND ".join([*self._partition(table), self._range(table)])
        elif kind == "partition":
            where = " AND ".join(self._partition(table))
        return f"DELETE {what}FROM {table}{using} WHERE {where}{condition}"

    def _deleted(self, column: Column) -> str:
        if not column.type.multicell or self._often(0.4):
            return column.name
        if column.type.kind == "udt":
            return f"{column.name}.{self._random.choice(column.type.fields)}"
        if column.type.kind == "list":
            return f"{column.name}[{self._random.randrange(2)}]"
        return f"{column.name}[{self._item(column.type.args[0])}]"

    def _range(self, table: Table) -> str:
        """A prefix of the clustering columns, or bounds of one column or of several together."""
        equal = max(self._random.randrange(len(table.clustering)) for _ in range(2))
        parts = [f"{column.name} = {self._key(column)}" for column in table.clustering[:equal]]
        rest = list(table.clustering[equal:])
        if equal and self._often(0.3):
            return " AND ".join(parts)
        together = rest[: self._random.randint(1, len(rest))]
        for sign in self._random.choice(((">",), ("<",), (">", "<"))):
            operator = sign + self._random.choice(("", "="))
            if len(together) == 1:
                parts.append(f"{together[0].name} {operator} {self._key(together[0])}")
            else:
                names, values = ", ".join(c.name for c in together), ", ".join(self._key(c) for c in together)
                parts.append(f"({names}) {operator} ({values})")
        return " AND ".join(parts)

    def _batch(self) -> str:
        # Without times of their own where the batch has one.
        shared = self._often(0.2)
        parts: list[str] = []
        for _ in range(self._random.randint(2, 6)):
            table = self._table()
            make = self._random.choice((self._insert, self._update, self._delete))
            using = "" if shared else self._timestamp() if make == self._delete else self._using()
            parts.append(make(table, using))
        kind = self._random.choice(("", "UNLOGGED "))
        using = self._timestamp() if shared else ""
        return f"BEGIN {kind}BATCH{using} {'; '.join(parts)}; APPLY BATCH"

    def _conditional(self) -> str:
        table = self._table()
        make = self._random.choice((self._insert, self._update, self._delete))
        if make == self._insert:
            return self._insert(table, "", " IF NOT EXISTS")
        return make(table, "", " IF EXISTS")

    def _count(self) -> str:
        table = self._random.choice(self._counters)
        column = self._random.choice(table.columns)
        static = column in table.static
        where = " AND ".join(self._partition(table)) if static else self._row(table)
        change = f"{self._random.choice('+-')} {self._random.choice((0, 1, 7, 2**40))}"
        return f"UPDATE {table} SET {column.name} = {column.name} {change} WHERE {where}"

    def _count_batch(self) -> str:
        return f"BEGIN COUNTER BATCH {'; '.join(self._count() for _ in range(3))}; APPLY BATCH"

    def _truncate(self) -> str:
        return f"TRUNCATE {self._random.choice((*self._tables, *self._counters))}"

    def _uncount(self) -> str:
        """Counters that were deleted as a row are counted anew; a deleted cell is gone for good."""
        table = self._random.choice(self._counters)
        what = "v1 " if self._often(0.3) else ""
        return f"DELETE {what}FROM {table} WHERE {self._row(table)}"
