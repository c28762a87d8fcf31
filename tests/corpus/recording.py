"""Runs random statements against a node, waits until they are in its segments, and keeps all of it as a corpus."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from cassandra import InvalidRequest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Session
from cassandra.protocol import ResultMessage, _ProtocolHandler

from tailrace.capture.cdcraw import CdcRaw
from tailrace.cluster import LiveCluster
from tailrace.commitlog.blocks import NO_KEYS, Keys
from tailrace.commitlog.mutation import first_table
from tailrace.local import LocalCassandra
from tailrace.state import Resume
from tailrace_schemas.table import Table
from tests.corpus.corpus import View, segment_id, write_corpus
from tests.corpus.release import Dialect, dialect_of
from tests.corpus.schema import alterations, creations
from tests.corpus.statements import Statements
from tests.integration.agents import contact_of_node, cql
from tests.support.waiting import until

_LONG = 2000
"""From so many statements on the schema is altered twice, not once: that takes longer than all else."""
_SECONDS = 60.0


class _Bytes(ResultMessage):  # type: ignore[misc]  # the driver has no types
    """Rows as the node sent them: nothing of the driver decodes a value."""

    def recv_results_rows(
        self, f: Any, protocol_version: int, user_type_map: Any, result_metadata: Any, policy: Any = None
    ) -> None:
        del protocol_version, policy
        self.recv_results_metadata(f, user_type_map)
        columns = self.column_metadata or result_metadata
        self.column_names = [column[2] for column in columns]
        self.column_types = [column[3] for column in columns]
        self.parsed_rows = [tuple(_read_value(f) for _ in columns) for _ in range(_read_int(f))]


class _BytesHandler(_ProtocolHandler):  # type: ignore[misc]  # the driver has no types
    message_types_by_opcode = {**_ProtocolHandler.message_types_by_opcode, ResultMessage.opcode: _Bytes}  # noqa: RUF012


def _read_int(file: Any) -> int:
    return int.from_bytes(file.read(4), "big", signed=True)


def _read_value(file: Any) -> bytes | None:
    size = _read_int(file)
    return None if size < 0 else bytes(file.read(size))


@dataclass(slots=True)
class Recorder:
    """One recording. `executed` are all statements, refused ones too, which begin with `--`."""

    session: Session
    live: LiveCluster
    keyspace: str
    executed: list[str] = field(default_factory=list)
    refused: int = 0
    tables: dict[UUID, Table] = field(default_factory=dict)

    def define(self, statement: str) -> None:
        self.session.execute(statement)
        self.executed.append(statement)

    def execute(self, statement: str) -> None:
        """Execute a statement that the node may refuse, as an index of a list that is too short: then it is noted."""
        try:
            self.session.execute(statement)
            self.executed.append(statement)
        except InvalidRequest as error:
            self.refused += 1
            self.executed.append(f"-- {' '.join(str(error).split())}: {statement}")

    def read_tables(self) -> list[Table]:
        """The keyspace's tables as they are now; also kept under their ids."""
        definitions = self.live.definitions()
        if definitions.problems:
            raise ValueError(str(definitions.problems[0]))
        found = [table for table in definitions.tables if table.keyspace == self.keyspace]
        self.tables.update({table.id: table for table in found})
        return found


def record(
    node: LocalCassandra,
    folder: Path,
    *,
    seed: int,
    keyspace: str,
    statements: int,
    far: bool = False,
    keys: Keys = NO_KEYS,
) -> None:
    """Record a corpus of so many statements from a seed, in a keyspace that must not exist. `far`: see Dialect.

    `keys` open the node's segments where it encrypts them.
    """
    random = Random(seed)
    with closing(LiveCluster(contact_of_node(node))) as live, _session(node) as session:
        release = live.local().release
        dialect = dialect_of(release, far_expiry=far)
        recorder = Recorder(session, live, keyspace)
        for statement in creations(random, keyspace, dialect):
            recorder.define(statement)
        phases = 3 if statements >= _LONG else 2
        for phase in range(phases):
            if phase:
                for statement in alterations(random, keyspace, recorder.read_tables(), dialect):
                    recorder.define(statement)
            now, last = time.time_ns() // 1000, phase == phases - 1
            script = Statements(random, recorder.read_tables(), dialect, now, ahead=last)
            for _ in range(statements // phases):
                recorder.execute(script.next())
        marker = _mark(recorder)
        views = [_view(session, table, dialect) for table in recorder.read_tables()]
    segments = _segments(node, keys, recorder.tables, marker)
    facts = {"seed": seed, "release": release, "keyspace": keyspace, "refused": recorder.refused}
    write_corpus(folder, facts, recorder.executed, recorder.tables.values(), views, segments)


@contextmanager
def _session(node: LocalCassandra) -> Iterator[Session]:
    with cql(node) as session:
        session.cluster.schema_metadata_enabled = False
        yield session


def _mark(recorder: Recorder) -> UUID:
    """The table of the row that is written last."""
    recorder.define(f"CREATE TABLE {recorder.keyspace}.last (k int PRIMARY KEY) WITH cdc = true")
    recorder.define(f"INSERT INTO {recorder.keyspace}.last (k) VALUES (1)")
    return next(table.id for table in recorder.read_tables() if table.name == "last")


def _segments(node: LocalCassandra, keys: Keys, tables: Mapping[UUID, Table], marker: UUID) -> list[Path]:
    """The segments that hold the tables' mutations, once the marker's row is on disk in one of them."""
    found: dict[str, None] = {}
    with closing(CdcRaw(node.cdc_raw, Resume(), keys)) as capture:

        def seen() -> bool:
            while entries := capture.read(1000):
                for entry in entries:
                    first = first_table(entry.payload, entry.version)[1]
                    if first in tables:
                        found[entry.file] = None
                    if first == marker:
                        return True
            return False

        until(seen, f"the last row in {node.cdc_raw}", _SECONDS)
    return [node.cdc_raw / name for name in sorted(found, key=segment_id)]


def _view(session: Session, table: Table, dialect: Dialect) -> View:
    """SELECT everything that CQL gives of a table."""
    columns = [(column.name, "value") for column in (*table.key, *table.columns)]
    for column in table.columns:
        if not table.is_counter and (dialect.element_times or not column.type.multicell):
            columns += [(column.name, "writetime"), (column.name, "ttl")]
    shown = ", ".join(name if what == "value" else f"{what}({name})" for name, what in columns)
    before = int(time.time())
    rows = tuple(select_bytes(session, f"SELECT {shown} FROM {table}"))
    return View(table.id, (before, int(time.time())), tuple(columns), rows)


def select_bytes(session: Session, query: str) -> list[tuple[bytes | None, ...]]:
    """The rows of a SELECT as the node sent them: of values that the driver cannot decode too, and to the bit."""
    handler, session.client_protocol_handler = session.client_protocol_handler, _BytesHandler
    profile = session.execution_profile_clone_update(EXEC_PROFILE_DEFAULT, row_factory=_plain)
    try:
        return list(session.execute(query, execution_profile=profile))
    finally:
        session.client_protocol_handler = handler


def _plain(names: list[str], rows: list[tuple[bytes | None, ...]]) -> list[tuple[bytes | None, ...]]:
    del names
    return rows
