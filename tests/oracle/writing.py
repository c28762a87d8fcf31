"""Executes programs on a node, each in a keyspace of its own: random ones, told as they go, and told ones again."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final
from uuid import UUID

from cassandra import RequestExecutionException, RequestValidationException
from cassandra.cluster import Session

from tailrace.cluster import LiveCluster
from tailrace_schemas.table import Table
from tests.corpus.kinds import Kinds
from tests.corpus.release import Dialect
from tests.corpus.schema import alterations, few_creations
from tests.corpus.statements import Pools, Statements
from tests.oracle.program import Program, due, told
from tests.support.waiting import until

_LAST_KINDS: Final = Kinds(finite=True)
_SECONDS: Final = 120.0
_DDL: Final = ("CREATE", "ALTER", "DROP")


@dataclass(slots=True)
class Source:
    """The node, as several programs share it. Schema changes are made one after the other: the node does so anyway,
    and reads of the schema stay consistent."""

    session: Session
    live: LiveCluster
    replication: int = 1
    schema: threading.Lock = field(default_factory=threading.Lock)


@dataclass(slots=True)
class Writer:
    """One program's keyspace. `tables` are all that it ever had; `present` those of the end, once it is finished.

    `finished` is when the last statement was answered, seconds since the epoch.
    """

    source: Source
    keyspace: str
    dialect: Dialect = field(default_factory=Dialect)
    lines: list[str] = field(default_factory=list)
    refused: int = 0
    doubtful: int = 0
    tables: dict[UUID, Table] = field(default_factory=dict)
    present: tuple[Table, ...] = ()
    finished: float = 0.0
    _began: int = field(default_factory=lambda: time.time_ns() // 1000)

    def write(self, seed: int, kinds: Kinds, statements: int) -> Program:
        """Make and execute a random program of so many statements, schema changes not counted."""
        random = Random(seed)
        tables = self._create(random, kinds)
        phases = 2 if kinds.alterations else 1
        pools: Pools = {}
        for phase in range(phases):
            if phase:
                with self.source.schema:
                    for statement in alterations(random, self.keyspace, tables, self.dialect, kinds, most=1):
                        self.execute(statement)
                    tables = self._read_tables()
            ahead = kinds.ahead and phase == phases - 1
            script = Statements(random, tables, self.dialect, self._began, ahead=ahead, kinds=kinds, pools=pools)
            for _ in range(statements // phases):
                self.execute(script.next())
        self._finish(tables)
        return Program(seed, tuple(self.lines))

    def begin(self, seed: int, kinds: Kinds) -> Statements:
        """Make the tables of a random program without alterations; the statements are for `execute`."""
        random = Random(seed)
        tables = self._create(random, kinds)
        return Statements(random, tables, self.dialect, self._began, kinds=kinds)

    def execute(self, statement: str) -> None:
        """Execute one statement; the node may refuse it, as an index of a list that is too short."""
        try:
            self.source.session.execute(due(statement, self.began, time.time()))
        except RequestValidationException:
            self.refused += 1
            return
        except RequestExecutionException:
            self.doubtful += 1  # a node is down: done or not, as SELECT will say
        self.lines.append(told(statement, self.keyspace, self._began))

    def repeat(self, program: Program) -> None:
        """Execute a program that was told; statements that fewer lines make senseless are refused, and left out."""
        for statement in program.within(self.keyspace, self._began):
            if statement.startswith(_DDL):
                with self.source.schema:
                    self.execute(statement)
                    if statement.startswith("DROP TABLE"):
                        self._read_tables()
            else:
                self.execute(statement)
        with self.source.schema:
            tables = self._read_tables()
        self._finish(tables)

    @property
    def began(self) -> float:
        """When the program began, seconds since the epoch."""
        return self._began / 1_000_000

    @property
    def expires(self) -> bool:
        """Whether anything that was written lives for seconds only."""
        return Program(0, tuple(self.lines)).expires

    def drop(self) -> None:
        """Drop the keyspace."""
        with self.source.schema:
            self.source.session.execute(f"DROP KEYSPACE IF EXISTS {self.keyspace}")

    def _create(self, random: Random, kinds: Kinds) -> list[Table]:
        with self.source.schema:
            for statement in few_creations(
                random, self.keyspace, self.dialect, kinds, replication=self.source.replication
            ):
                self.execute(statement)
            return self._read_tables()

    def _finish(self, tables: list[Table]) -> None:
        """One more write to each table: who follows the log knows a definition only by what was written under it."""
        for table in tables:
            last_word = Statements(Random(0), [table], self.dialect, self._began, kinds=_LAST_KINDS).last_word()
            until(partial(self._is_taken, last_word), f"a node that takes {last_word}", _SECONDS)
        self.present = tuple(tables)
        self.finished = time.time()

    def _is_taken(self, statement: str) -> bool:
        """Whether a statement was executed: a node that was down may not know the schema yet."""
        try:
            self.source.session.execute(statement)
        except RequestExecutionException:
            return False
        return True

    def _read_tables(self) -> list[Table]:
        """The keyspace's tables as they are now, by name; what is not of a program comes in no order."""
        definitions = self.source.live.definitions()
        found = [table for table in definitions.tables if table.keyspace == self.keyspace]
        self.tables.update({table.id: table for table in found})
        return sorted(found, key=_name)


def _name(table: Table) -> str:
    return table.name
