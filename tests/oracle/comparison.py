"""What SELECT answers of a keyspace, and what a database that follows it shows: row by row, column by column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol
from uuid import UUID

import sqlalchemy as sa
from cassandra.cluster import Session

from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.table import Table
from tailrace_spark.sinks.protocol import SweepingSink
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.oracle.values import answered, key_of, normal
from tests.support.letters import MemoryLetters
from tests.unit.spark.sinks.in_tasks import InTasks

Row = tuple[object, ...]
"""The values of a table's columns, key columns first, in the definition's order."""

_SHOWN: Final = 160


@dataclass(frozen=True, slots=True)
class Difference:
    """One row that only one side has; of a row that both have otherwise, the first column that differs."""

    table: str
    key: Row
    words: str

    def __str__(self) -> str:
        return f"{self.table} {self.key}: {self.words}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What SELECT * answered of one table."""

    table: Table
    rows: tuple[Row, ...]

    @property
    def counts(self) -> Counter[str]:
        """How many rows it has, cells that are not null beside their keys, and, among them, collections of cells."""
        size, columns = len(self.table.key), self.table.columns
        cells = [c for row in self.rows for c, value in zip(columns, row[size:], strict=True) if value is not None]
        collections = sum(column.type.multicell for column in cells)
        return Counter({"rows": len(self.rows), "cells": len(cells), "collections": collections})


def ask(session: Session, tables: Iterable[Table]) -> list[Answer]:
    """SELECT everything of each table, at the session's consistency level."""
    return [_ask(session, table) for table in tables]


def _ask(session: Session, table: Table) -> Answer:
    columns = [column.name for column in (*table.key, *table.columns)]
    rows = session.execute(f"SELECT {', '.join(columns)} FROM {table}")
    return Answer(table, tuple(row_of(table, dict(zip(columns, row, strict=True)), answered) for row in rows))


class Followed(Protocol):
    """A store that a merging sink writes, read beside it."""

    def open(self, clock: Callable[[], float]) -> SweepingSink:
        """A sink that writes it."""

    def rows(self, table: Table) -> list[Row]:
        """The rows that follow a table; none where it has not been written yet."""

    def set_aside(self) -> Sequence[tuple[str, str]]:
        """Topic and reason of every dead letter."""


class Downstream:
    """A database that a SQL sink writes, read beside it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = sa.create_engine(url)
        self._letters = MemoryLetters()

    @property
    def kind(self) -> str:
        """Which database it is."""
        return self._engine.dialect.name

    def open(self, clock: Callable[[], float]) -> SweepingSink:
        """A sink that writes it."""
        return SqlSink(self.url, clock=clock, letters=self._letters)

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    def has(self, table: Table, key: int) -> bool:
        """Whether a table shows a row whose only key column is this int; never where the table is not there yet."""
        return any(row[0] == key for row in self.rows(table))

    def rows(self, table: Table) -> list[Row]:
        """The rows of the view that follows a table; none while there is no such view.

        A column that the view lacks is null.
        """
        with self._engine.begin() as connection:
            name = self._name(connection, table.id)
            if name is None:
                return []
            quoted = self._engine.dialect.identifier_preparer.quote(name)
            found = connection.exec_driver_sql(f"SELECT * FROM {quoted}")
            return [row_of(table, {**values}, normal) for values in found.mappings()]

    def set_aside(self) -> Sequence[tuple[str, str]]:
        """Topic and reason of every dead letter."""
        return self._letters.told()

    def _name(self, connection: sa.Connection, table_id: UUID) -> str | None:
        if not sa.inspect(connection).has_table("tailrace_tables"):
            return None
        query = sa.text("SELECT name FROM tailrace_tables WHERE table_id = :id")
        name: str | None = connection.execute(query, {"id": str(table_id)}).scalar_one_or_none()
        return name


class TaskDownstream(Downstream):
    """The same, written by tasks."""

    def open(self, clock: Callable[[], float]) -> SweepingSink:
        """A sink that writes it, each batch by a task for each partition of keys."""
        return InTasks(super().open(clock))


def row_of(table: Table, values: Mapping[str, Any], form: Callable[[Any, CqlType], object]) -> Row:
    """A row out of values by column, each in the form that `form` makes of it; a column that is not there is null."""
    keys = [key_of(form(values.get(column.name), column.type), column.type) for column in table.key]
    return (*keys, *(form(values.get(column.name), column.type) for column in table.columns))


def differences(answers: Iterable[Answer], followed: Followed) -> list[Difference]:
    """How the store differs from what was answered; empty when they are equal."""
    return [found for answer in answers for found in differ(answer, followed.rows(answer.table))]


def differ(answer: Answer, stored: Sequence[Row]) -> list[Difference]:
    """How rows differ from those answered. Keys that read alike (an empty int and null) may come several times."""
    missing = Counter(answer.rows)
    missing.subtract(stored)
    return list(_told(answer.table, +missing, -missing))


def _told(table: Table, missing: Counter[Row], extra: Counter[Row]) -> Iterator[Difference]:
    size = len(table.key)
    others: dict[Row, list[Row]] = {}
    for row in extra.elements():
        others.setdefault(row[:size], []).append(row)
    for row in missing.elements():
        same = others.get(row[:size])
        yield Difference(str(table), row[:size], _columns(table, row, same.pop()) if same else "only in Cassandra")
    for rows in others.values():
        for row in rows:
            yield Difference(str(table), row[:size], f"only in the sink: {str(row[size:])[:_SHOWN]}")


def _columns(table: Table, left: Row, right: Row) -> str:
    names = [column.name for column in (*table.key, *table.columns)]
    found = [(name, a, b) for name, a, b in zip(names, left, right, strict=True) if a != b]
    return "; ".join(f"{name} is {str(a)[:_SHOWN]} in Cassandra, {str(b)[:_SHOWN]} in the sink" for name, a, b in found)
