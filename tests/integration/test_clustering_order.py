"""A live Cassandra keeps, orders and slices rows of every clustering type as the sortable forms say."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from cassandra.cluster import Cluster, Session
from cassandra.concurrent import execute_concurrent
from cassandra.protocol import ResultMessage, _ProtocolHandler, read_int
from cassandra.query import BoundStatement, PreparedStatement, tuple_factory

from tailrace.local import LocalCassandra
from tailrace_schemas.change import Bound
from tailrace_schemas.clustering import clustering_key, range_limits
from tailrace_schemas.cql.types import UserTypeDefinition, parse_type
from tailrace_schemas.table import Column, ColumnKind, Table
from tests.integration.agents import BUSY_SECONDS
from tests.unit.tables import TABLE_ID

# The values of the recorded comparisons: every type, with empties, extremes and equal numbers written otherwise.
RECORDED = Path(__file__).parents[1] / "unit" / "schemas" / "cql" / "cassandra_5.0.9_compare.tsv"
USER_TYPES = {"u": UserTypeDefinition("u", ("a", "b", "c"), ("text", "int", "frozen<list<text>>"))}
PARTITION = bytes(4)


class _RawRows(ResultMessage):  # type: ignore[misc]  # the driver is untyped
    """Result rows as Cassandra's own bytes."""

    def recv_results_rows(self, f: Any, _version: int, types: Any, metadata: Any, _policy: Any) -> None:
        self.recv_results_metadata(f, types)
        columns = self.column_metadata or metadata
        self.column_names = [column[2] for column in columns]
        self.column_types = [column[3] for column in columns]
        self.parsed_rows = [tuple(self.recv_row(f, len(columns))) for _ in range(read_int(f))]


class _RawProtocol(_ProtocolHandler):  # type: ignore[misc]  # the driver is untyped
    message_types_by_opcode: ClassVar[dict[int, type]] = {
        **_ProtocolHandler.message_types_by_opcode,
        ResultMessage.opcode: _RawRows,
    }


def _recorded() -> dict[str, list[bytes]]:
    values: dict[str, set[bytes]] = {}
    for line in RECORDED.read_text("ascii").splitlines():
        text, left, right, _ = line.split("\t")
        values.setdefault(text, set()).update((bytes.fromhex(left), bytes.fromhex(right)))
    return {text: sorted(found) for text, found in values.items()}


VALUES = _recorded()


@pytest.fixture(scope="module")
def session(cassandra: LocalCassandra) -> Iterator[Session]:
    """A session in a keyspace of this module, with user type u."""
    # The only node agrees with itself, and nobody asks for metadata: each table made costs a fraction.
    cluster = Cluster(
        [cassandra.address],
        port=cassandra.port,
        connect_timeout=BUSY_SECONDS,
        control_connection_timeout=BUSY_SECONDS,
        schema_metadata_enabled=False,
        max_schema_agreement_wait=0,
    )
    with cluster, cluster.connect() as connected:
        connected.execute(
            "CREATE KEYSPACE clustering_order "
            "WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1} AND durable_writes = false"
        )
        connected.default_timeout = BUSY_SECONDS
        connected.set_keyspace("clustering_order")
        connected.execute("CREATE TYPE u (a text, b int, c frozen<list<text>>)")
        connected.client_protocol_handler = _RawProtocol
        connected.row_factory = tuple_factory
        yield connected


def _bind(statement: PreparedStatement, *values: bytes) -> BoundStatement:
    """Bound to Cassandra's own bytes, which Python values could not all give."""
    bound = BoundStatement(statement)
    bound.values = list(values)
    return bound


def _table(name: str, text: str, descending: bool) -> Table:
    column = Column("c", b"c", ColumnKind.CLUSTERING, parse_type(text, USER_TYPES), 0, descending)
    key = Column("p", b"p", ColumnKind.PARTITION_KEY, parse_type("int"), 0)
    return Table(keyspace="clustering_order", name=name, id=TABLE_ID, partition_key=(key,), clustering=(column,))


def _insert(session: Session, table: Table, values: list[bytes]) -> list[bytes]:
    """Write the values in random order, i counting them; those that Cassandra takes, in the order of i.

    It refuses empty dates, times and collections, also inside of others, though it can compare them; on empty elements
    of a list it fails.
    """
    check = session.prepare(f"SELECT i FROM {table.name} WHERE p = ? AND c = ?")
    asked = execute_concurrent(
        session, [(_bind(check, PARTITION, value), None) for value in values], raise_on_first_error=False
    )
    taken = [value for value, answer in zip(values, asked, strict=True) if answer.success]
    assert len(taken) > len(values) / 2
    random.Random(table.name).shuffle(taken)
    insert = session.prepare(f"INSERT INTO {table.name} (p, c, i) VALUES (?, ?, ?) USING TIMESTAMP ?")
    rows = [
        _bind(insert, PARTITION, value, index.to_bytes(4, "big"), (index + 1).to_bytes(8, "big"))
        for index, value in enumerate(taken)
    ]
    execute_concurrent(session, [(row, None) for row in rows], raise_on_first_error=True)
    return taken


@pytest.mark.parametrize("descending", [False, True], ids=["asc", "desc"])
@pytest.mark.parametrize("text", VALUES)
def test_rows_come_in_the_order_of_their_keys(session: Session, text: str, descending: bool) -> None:
    table = _table(f"t{list(VALUES).index(text)}_{'desc' if descending else 'asc'}", text, descending)
    direction = "DESC" if descending else "ASC"
    session.execute(
        f"CREATE TABLE {table.name} (p int, c {table.clustering[0].type}, i int, PRIMARY KEY (p, c)) "
        f"WITH CLUSTERING ORDER BY (c {direction})"
    )
    values = _insert(session, table, VALUES[text])
    found = list(session.execute(f"SELECT c, i FROM {table.name} WHERE p = 0"))
    keys = [clustering_key(table, (value,)) for value, _ in found]
    assert keys == sorted(set(keys))
    if descending or not text.startswith("frozen<"):
        # Values with one key are one row, which the last of them wrote. (Others Cassandra rewrites: it sorts sets.)
        stored = {clustering_key(table, (value,)): index for index, value in enumerate(values)}
        assert {key: int.from_bytes(i, "big") for key, (_, i) in zip(keys, found, strict=True)} == stored

    between = session.prepare(f"SELECT i FROM {table.name} WHERE p = ? AND c > ? AND c <= ?")
    ends = [value for value, _ in found]
    random.Random(text).shuffle(ends)
    for low, high in zip(ends[::7], ends[3::7], strict=False):
        above, up_to = Bound((low,), False), Bound((high,), True)
        lower, upper = range_limits(table, up_to, above) if descending else range_limits(table, above, up_to)
        sliced = [i for (i,) in session.execute(_bind(between, PARTITION, low, high))]
        assert sliced == [i for key, (_, i) in zip(keys, found, strict=True) if lower <= key < upper]
