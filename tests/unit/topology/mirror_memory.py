"""The mirror's tables as values, reconciled as Cassandra does: the newest write time wins, cell by cell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tailrace.topology.mirror_plan import (
    PRIMARY_KEYS,
    TIMESTAMPS_KEY,
    IdForm,
    MirrorTable,
    Removal,
    Shapes,
    Step,
    Write,
)
from tailrace_schemas.generation_records import GenerationLog, PublishedGeneration, encode_proposal
from tailrace_schemas.ring import Ring
from tests.unit.topology.rings import proposal

Row = dict[str, Any]


@dataclass
class MemoryStore:
    """A MirrorStore in memory. `before` is called with the number of statements before each of them."""

    keyspace: str = "mirror"
    before: Callable[[int], None] = lambda _: None
    statements: list[object] = field(default_factory=list)
    tables: dict[str, dict[str, str]] | None = None
    cluster_tables: list[Mapping[str, Any]] = field(default_factory=list)
    replication: Mapping[str, int] | None = None
    _cells: dict[tuple[MirrorTable, tuple[object, ...], str], tuple[int, object]] = field(default_factory=dict)
    _removed: dict[tuple[MirrorTable, tuple[object, ...]], int] = field(default_factory=dict)

    def _next(self, statement: object) -> None:
        self.before(len(self.statements))
        self.statements.append(statement)

    def shapes(self) -> Shapes | None:
        return self.tables

    def create_keyspace(self, replication: Mapping[str, int]) -> None:
        self._next("keyspace")
        self.replication = replication
        self.tables = self.tables or {}

    def create_table(self, table: MirrorTable, form: IdForm) -> None:
        self._next(table)
        assert self.tables is not None
        self.tables[table] = dict(form.types[table])

    def apply(self, step: Step) -> None:
        self._next(step)
        self.put(step)

    def put(self, step: Step) -> None:
        """The same, uncounted: what somebody else did, or does late."""
        key_columns = PRIMARY_KEYS[step.table]
        if isinstance(step, Removal):
            self._removed[step.table, step.values] = max(
                step.written, self._removed.get((step.table, step.values), step.written)
            )
            return
        for row in step.rows:
            values = dict(zip(step.columns, row, strict=True))
            key = tuple(values[name] for name in key_columns)
            for name, value in {**values, "": None}.items():
                there = self._cells.get((step.table, key, name))
                if there is None or there[0] <= step.written:
                    self._cells[step.table, key, name] = (step.written, value)

    def rows(self, table: MirrorTable) -> dict[tuple[object, ...], Row]:
        """What SELECT returns, by primary key."""
        found: dict[tuple[object, ...], Row] = {}
        for (of, key, name), (written, value) in self._cells.items():
            gone = max(self._removed.get((of, key[:n]), -(2**63)) for n in range(1, len(key) + 1))
            if of is table and written > gone:
                found.setdefault(key, {})[name] = value
        return {key: {name: value for name, value in row.items() if name} for key, row in sorted(found.items())}

    def content(self) -> dict[MirrorTable, dict[tuple[object, ...], Row]]:
        return {table: self.rows(table) for table in MirrorTable}

    def expirations(self, table: MirrorTable) -> Mapping[int, int | None]:
        self.require(table)
        place = 1 if table is MirrorTable.TIMESTAMPS else 0
        return {int(str(key[place])): row.get("expired") for key, row in self.rows(table).items()}

    def partitions(self) -> Sequence[int]:
        self.require(MirrorTable.STREAMS)
        return sorted({int(str(key[0])) for key in self.rows(MirrorTable.STREAMS)})

    def range_ends(self, time: int) -> Sequence[int]:
        return [int(str(key[1])) for key in self.rows(MirrorTable.STREAMS) if key[0] == time]

    def local(self) -> Mapping[str, int | None]:
        self.require(MirrorTable.LOCAL)
        return {str(key[0]): row.get("streams_timestamp") for key, row in self.rows(MirrorTable.LOCAL).items()}

    def description(self, time: int) -> Sequence[tuple[Any, Sequence[Any], int]] | None:
        row = self.rows(MirrorTable.DESCRIPTIONS).get((time,))
        return None if row is None else row.get("description")

    def tables_of_cluster(self) -> Sequence[Mapping[str, Any]]:
        return self.cluster_tables

    def require(self, table: MirrorTable) -> None:
        """Cassandra answers no query of a table that is not there."""
        assert self.tables is not None, f"no keyspace {self.keyspace}"
        assert table in self.tables, f"no table {table}"


def readable(store: MemoryStore) -> dict[int, int]:
    """What a reader finds: each generation whose timestamp it sees, and how many rows it has."""
    rows = store.rows(MirrorTable.STREAMS)
    return {
        int(str(key[1])): sum(1 for other in rows if other[0] == key[1])
        for key in store.rows(MirrorTable.TIMESTAMPS)
        if key[0] == TIMESTAMPS_KEY
    }


def published(*rings: Ring, begin: int, apart: int, streams: int = 1) -> tuple[PublishedGeneration, ...]:
    """Valid generations of these rings, so many milliseconds apart."""
    log, predecessor = GenerationLog(), None
    records: Iterable[tuple[bytes, bytes]]
    for number, ring in enumerate(rings):
        records = encode_proposal(proposal(ring, predecessor, begin + number * apart, streams))
        for key, value in records:
            log.feed(0, 0, key, value)
        predecessor = begin + number * apart
    assert len(log.published) == len(rings)
    return log.published


def written(store: MemoryStore) -> list[Write]:
    """The writes among the statements, in order."""
    return [one for one in store.statements if isinstance(one, Write)]
