"""As much of Cassandra as the log tables need, in memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from tailrace_schemas.change import Change
from tailrace_schemas.digest import change_digest
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.position import Position
from tailrace_schemas.streams import Assignment
from tailrace_schemas.table import DroppedColumn
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, RecordId
from tailrace_spark.sinks.cassandra.cluster import RefusedError
from tailrace_spark.sinks.cassandra.cql import ABSENT, Mutation
from tailrace_spark.sinks.cassandra.log.rows import write_times
from tailrace_spark.sinks.cassandra.log.sink import LogTablesSink
from tailrace_spark.sinks.cassandra.settings import LogTablesSinkSettings
from tailrace_spark.sinks.cassandra.sink_base import SinkOpener
from tailrace_spark.sinks.letters import LOGGED, Letters
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

STREAM = bytes(15) + b"\x01"
ORDERS = table({"id": "int"}, {"n": "int"}, regular={"v": "text"}, keyspace="shop", name="orders")
LOG = Log(ORDERS)
ORDERS_LOG = "shop.orders_scylla_cdc_log"
WIDER = replace(ORDERS, regular=(*ORDERS.regular, *table({"id": "int"}, regular={"m": "map<int, addr>"}).regular))
NARROWED = replace(ORDERS, dropped=(DroppedColumn(WIDER.regular[-1], 1_000),))
Row = tuple[bytes | None, ...]


@dataclass
class Cluster:
    """As much of Cassandra as the sink sees; `down` and `refuses` make it fail."""

    keyspaces: frozenset[str] = frozenset({"shop"})
    tables: dict[str, dict[str, str]] = field(default_factory=dict)
    types: dict[str, dict[str, str]] = field(default_factory=dict)
    comments: dict[str, str] = field(default_factory=dict)
    rows: dict[str, dict[Row, dict[str, bytes]]] = field(default_factory=dict)
    statements: list[str] = field(default_factory=list)
    mutations: list[Mutation] = field(default_factory=list)
    down: bool = False
    refuses: bytes | None = None

    def connect(self) -> None:
        if self.down:
            raise ServiceError("Cassandra is down")

    def columns(self, keyspace: str, name: str) -> Mapping[str, str]:
        self.connect()
        return dict(self.tables.get(f"{keyspace}.{name}", {}))

    def fields(self, keyspace: str, user_type: str) -> Mapping[str, str]:
        return dict(self.types.get(f"{keyspace}.{user_type}", {}))

    def has_keyspace(self, keyspace: str) -> bool:
        return keyspace in self.keyspaces

    def identity(self, keyspace: str, name: str) -> tuple[UUID, str] | None:
        comment = self.comments.get(f"{keyspace}.{name}")
        return None if comment is None else (UUID(int=7), comment)

    def define(self, statement: str) -> None:
        self.statements.append(statement)
        if made := re.fullmatch(r"CREATE TABLE IF NOT EXISTS (\S+) \((.*), PRIMARY KEY .*", statement):
            if made[1].split(".")[0].strip('"') not in self.keyspaces:
                raise RefusedError("no such keyspace")
            self.tables[made[1].replace('"', "")] = _typed(made[2])
            if comment := re.search(r"comment = '(.*?)'", statement):
                self.comments[made[1].replace('"', "")] = comment[1]
        elif added := re.fullmatch(r"ALTER TABLE (\S+) ADD \((.*)\)", statement):
            there = self.tables[added[1]]
            if both := there.keys() & _typed(added[2]).keys():
                raise RefusedError(f"{both} exist already")
            there |= _typed(added[2])
        elif dropped := re.fullmatch(r"ALTER TABLE (\S+) DROP \((.*)\)", statement):
            for name in dropped[2].split(", "):
                del self.tables[dropped[1]][name.strip('"')]
        elif made := re.fullmatch(r"CREATE TYPE IF NOT EXISTS (\S+) \((.*)\)", statement):
            self.types[made[1]] = _typed(made[2])
        elif added := re.fullmatch(r"ALTER TYPE (\S+) ADD (\S+) (.*)", statement):
            self.types[added[1]][added[2]] = added[3]

    def apply(self, mutations: Iterable[Mutation]) -> None:
        self.connect()
        for mutation in mutations:
            if any(self.refuses is not None and self.refuses in row for _, row in mutation.statements):
                raise RefusedError("too large")
            self.mutations.append(mutation)
            for statement, row in mutation.statements:
                self._run(statement, tuple(None if value is ABSENT else value for value in row))

    def _run(self, statement: str, row: Row) -> None:
        if deleted := re.match(r"DELETE FROM (\S+)", statement):
            self.rows.get(deleted[1].replace('"', ""), {}).pop(row, None)
            return
        matched = re.match(r"INSERT INTO (\S+) \((.*?)\) VALUES", statement)
        assert matched is not None
        there = self.tables.get(matched[1].replace('"', ""))
        if there is None:
            raise RefusedError("unconfigured table")
        names = [name.strip('"') for name in matched[2].split(", ")]
        values = {name: value for name, value in zip(names, row, strict=False) if value is not None}
        if not set(names) <= there.keys():
            raise RefusedError("undefined column")
        key = row[:1] if names[0] == "table_name" else row[:3]
        self.rows.setdefault(matched[1].replace('"', ""), {})[key] = values

    def execute(self, statement: str, values: Sequence[str | int] = ()) -> Sequence[tuple[Any, ...]]:
        """The question that is asked of watermarks."""
        assert "complete_until" in statement
        self.connect()
        watermark = self.watermarks().get(str(values[0]))
        return [] if watermark is None else [watermark]

    @staticmethod
    def settings(**settings: object) -> LogTablesSinkSettings:
        return LogTablesSinkSettings.model_validate({"contact_points": ["h"], **settings})

    def sink(self, letters: Letters = LOGGED, opener: SinkOpener | None = None, **settings: object) -> LogTablesSink:
        """One by these settings that writes here."""
        store: Any = self
        return LogTablesSink(store, self.settings(**settings), letters, opener)

    def logs(self) -> list[str]:
        """The log tables."""
        return [name for name in self.tables if name.endswith("_scylla_cdc_log")]

    def watermarks(self) -> dict[str, tuple[int | None, str]]:
        """`complete_until` and `waits_for` of each log."""
        rows = self.rows.get("shop.tailrace_log_watermarks", {}).values()
        found: dict[str, tuple[int | None, str]] = {}
        for row in rows:
            time = row.get("complete_until")
            found[row["table_name"].decode()] = (None if time is None else _number(time), row["waits_for"].decode())
        return found

    def close(self) -> None:
        pass


def _typed(listed: str) -> dict[str, str]:
    """Types by name, of `name type, name type`."""
    parts = re.findall(r'("?[\w$]+"?) ((?:[^,<]|<.*?>+)+)(?:, |$)', listed)
    return {name.strip('"'): cql_type for name, cql_type in parts}


def _number(value: bytes | None) -> int:
    return int.from_bytes(value or b"", "big", signed=True)


def piece(*mutations: Sequence[Change], letters: Sequence[DeadLetter] = ()) -> Piece:
    """Each sequence is one mutation's update of one table."""
    found: list[Delivered] = []
    for number, mutation in enumerate(mutations):
        for index, change in enumerate(mutation):
            assert change.source is not None
            source = replace(change.source, position=Position(1, 5, 1000 + number), index=index, count=len(mutation))
            placed = replace(change, source=source)
            placed = replace(placed, digest=change_digest(placed))
            others = tuple((time, Assignment(1, STREAM)) for time in sorted(write_times(placed)))
            place = RecordId(f"t.{change.table}", 0, len(found), b"schema-1")
            found.append(Delivered(place, placed, None, -1, others))
    return Piece(tuple(found), tuple(letters))
