"""The Cassandra node beside the agent: schema, identity, ring, schema events."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tailrace.driver import (
    BatchStatement,
    BatchType,
    ConsistencyLevel,
    NoHostAvailable,
    RingListener,
    Session,
    driver_of_node,
    failure_of,
)
from tailrace.history.objects import NodeState, metadata_epoch_of
from tailrace.history.rows import KeyedRow, Name, definitions_of
from tailrace_common.sections.cassandra import CassandraSettings
from tailrace_schemas.definitions import Definitions
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.ring import Node, Ring
from tailrace_schemas.tokens import token

MURMUR3: Final = "org.apache.cassandra.dht.Murmur3Partitioner"
_READS: Final = 5

# Exactly the columns that tables_from_rows reads, and when they were written; dropped_time as milliseconds, because the
# system keyspaces' are beyond any datetime.
_SCHEMA_QUERIES: Final[Mapping[str, str]] = {
    "tables": "SELECT keyspace_name, table_name, id, flags, cdc, writetime(id) AS written FROM system_schema.tables",
    "views": (
        "SELECT keyspace_name, view_name, id, base_table_name, cdc, writetime(id) AS written FROM system_schema.views"
    ),
    "columns": (
        "SELECT keyspace_name, table_name, column_name, column_name_bytes, kind, position, clustering_order, type, "
        "writetime(type) AS written FROM system_schema.columns"
    ),
    "dropped_columns": (
        "SELECT keyspace_name, table_name, column_name, kind, type, toUnixTimestamp(dropped_time) AS dropped_time, "
        "writetime(type) AS written FROM system_schema.dropped_columns"
    ),
    "types": (
        "SELECT keyspace_name, type_name, field_names, field_types, writetime(field_names) AS written "
        "FROM system_schema.types"
    ),
}
_DESCRIBED: Final = ("keyspace", "table", "materialized_view")
_OUR_TABLES: Final = (
    "grant cluster.username CREATE, SELECT and MODIFY on mirror.keyspace, or make its tables yourself and "
    "grant SELECT and MODIFY (docs/security.md 2)"
)
_GOSSIP_EXISTS: Final = (
    "SELECT table_name FROM system_virtual_schema.tables "
    "WHERE keyspace_name = 'system_views' AND table_name = 'gossip_info'"
)
# What gossip says of a node, the words before the comma (VersionedValue). A member that was shut down, or is known only
# from before this node's restart (no word), keeps its tokens: nodetool status calls it DN, down and normal.
_NORMAL: Final = frozenset({"NORMAL", "shutdown", ""})
# Those of nodes that will own tokens, or own some that this node has not noted yet. Others without tokens have left
# (LEFT, removed), or coordinate only (hibernate).
_COMING: Final = frozenset({"BOOT", "BOOT_REPLACE", "NORMAL"})


@dataclass(frozen=True, slots=True)
class LocalNode:
    """Who the connected node is. `host` is its host id."""

    host: str
    datacenter: str
    cluster: str
    partitioner: str
    release: str


class LiveCluster:
    """A connection to one node. The driver keeps it, and reconnects; queries raise ServiceError meanwhile.

    `listener` is called from the driver's threads, with words for the log. It hears when the schema may have changed,
    and when the connection was lost or is back. A node that says nothing for two request timeouts counts as lost.
    `ring_listener` is called when a node went up or down, and, with True, when one joined or left the ring.
    """

    def __init__(
        self,
        settings: CassandraSettings,
        listener: Callable[[str], None] = lambda _: None,
        ring_listener: RingListener = lambda *_: None,
    ) -> None:
        self._where = settings.location
        self._cluster = driver_of_node(settings, listener, ring_listener)
        try:
            self._session: Session = self._cluster.connect()
        except Exception as error:
            self._cluster.shutdown()
            raise failure_of(self._where, error) from error

    def check(self) -> LocalNode:
        """Who the node is; compares its tokens with ours. Raises SettingsError when they cannot agree."""
        node = self.local()
        if node.partitioner != MURMUR3:
            raise SettingsError(
                f"Cassandra at {self._where} uses {node.partitioner}; Tailrace computes the tokens of {MURMUR3} only"
            )
        for row in self._rows("SELECT DISTINCT keyspace_name, token(keyspace_name) AS t FROM system_schema.tables"):
            own_token = token(row["keyspace_name"].encode())
            if own_token != row["t"]:
                raise SettingsError(
                    f"Cassandra at {self._where} gives {row['keyspace_name']!r} the token {row['t']}, Tailrace "
                    f"{own_token}: changes would go to wrong partitions. Please report this"
                )
        return node

    def local(self) -> LocalNode:
        """The connected node, as `system.local` has it."""
        row = self._rows("SELECT host_id, data_center, cluster_name, partitioner, release_version FROM system.local")[0]
        return LocalNode(
            host=str(row["host_id"]),
            datacenter=row["data_center"],
            cluster=row["cluster_name"],
            partitioner=row["partitioner"],
            release=row["release_version"],
        )

    def schema_version(self) -> str:
        """The node's schema version: another one, another schema."""
        return str(self._rows("SELECT schema_version FROM system.local")[0]["schema_version"])

    def definitions(self) -> Definitions:
        """All tables and views of all keyspaces, the system's included, as one consistent read."""
        return definitions_of(self.schema_rows())

    def schema_rows(self) -> Sequence[KeyedRow]:
        """The rows that define them, each with its newest write time (microseconds), as one consistent read."""
        for _ in range(_READS):
            version = self.schema_version()
            rows = {name: self._rows(query) for name, query in _SCHEMA_QUERIES.items()}
            if self.schema_version() == version:
                break
        return [_keyed(name, row) for name, table_rows in rows.items() for row in table_rows]

    def node_state(self) -> NodeState:
        """What else of it matters to the schema: keyspaces' options, its truncations, the metadata's epoch."""
        local = self._rows("SELECT schema_version, truncated_at FROM system.local")[0]
        keyspaces = self._rows("SELECT keyspace_name, durable_writes, replication FROM system_schema.keyspaces")
        return NodeState(
            {
                row["keyspace_name"]: {
                    "durable_writes": row["durable_writes"],
                    "replication": dict(row["replication"] or {}),
                }
                for row in keyspaces
            },
            {id: bytes(value) for id, value in (local["truncated_at"] or {}).items()},
            metadata_epoch_of(local["schema_version"]),
        )

    def statements(self, keyspaces: Collection[str]) -> Mapping[Name, str]:
        """What DESCRIBE says of these keyspaces, under (keyspace, ""), and of their tables and views."""
        statements: dict[Name, str] = {}
        for keyspace in sorted(keyspaces):
            for row in self._rows(f'DESCRIBE KEYSPACE "{keyspace}"'):
                name = "" if row["type"] == "keyspace" else row["name"].strip('"')  # names have none inside
                if row["type"] in _DESCRIBED:
                    statements[keyspace, name] = row["create_statement"]
        return statements

    def ring(self) -> Ring:
        """Tokens by host of all nodes that this one knows, and which of them join, leave or move.

        Cassandra 4.1 and later say who does (system_views.gossip_info); an older node's are all taken for NORMAL.
        Raises RingError when it knows no tokens.
        """
        gossip: Sequence[Mapping[str, Any]] = ()
        if self._rows(_GOSSIP_EXISTS):
            gossip = self._rows("SELECT host_id, dc, status, status_with_port FROM system_views.gossip_info")
        local = self._rows("SELECT host_id, data_center, tokens FROM system.local")
        peers = self._rows("SELECT host_id, data_center, tokens FROM system.peers_v2")
        return ring_of((*local, *peers), gossip)

    def addresses(self) -> dict[str, str]:
        """The address at which the other nodes know each node, by host id, of all nodes that this one knows."""
        local = self._rows("SELECT host_id, broadcast_address AS address FROM system.local")
        peers = self._rows("SELECT host_id, peer AS address FROM system.peers_v2")
        return {str(row["host_id"]): str(row["address"]) for row in (*local, *peers) if row["host_id"] is not None}

    def known_address(self, host: str) -> str | None:
        """The address of a host id; None where this node knows none, or does not answer."""
        try:
            return self.addresses().get(host)
        except ServiceError:
            return None

    def execute(self, statement: str) -> Sequence[Mapping[str, Any]]:
        """Run any CQL statement; its rows by column name, empty where it returns none. Raises ServiceError."""
        return self._rows(statement)

    def read(self, statement: str, values: Sequence[object] = ()) -> Sequence[Mapping[str, Any]]:
        """The rows of a query of a table of ours, as a majority of the replicas has them. Raises ServiceError."""
        try:
            bound = self._session.prepare(statement).bind(values)
            bound.consistency_level = ConsistencyLevel.QUORUM
            return list(self._session.execute(bound))
        except Exception as error:
            raise failure_of(self._where, self._reason(error), _OUR_TABLES) from error

    def write(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        """Run a statement for each row, all of one partition and as a whole, on a majority. Raises ServiceError."""
        try:
            prepared = self._session.prepare(statement)
            batch = BatchStatement(BatchType.UNLOGGED, consistency_level=ConsistencyLevel.QUORUM)
            for values in rows:
                batch.add(prepared, values)
            self._session.execute(batch)
        except Exception as error:
            raise failure_of(self._where, self._reason(error), _OUR_TABLES) from error

    def define(self, statement: str) -> None:
        """Run DDL for a table of ours. Raises ServiceError."""
        try:
            self._session.execute(statement)
        except Exception as error:
            raise failure_of(self._where, self._reason(error), _OUR_TABLES) from error

    def close(self) -> None:
        """End the driver's threads and connections."""
        self._cluster.shutdown()

    def _rows(self, query: str) -> Sequence[Mapping[str, Any]]:
        try:
            return list(self._session.execute(query))
        except Exception as error:
            raise failure_of(self._where, self._reason(error)) from error

    def _reason(self, error: Exception) -> Exception:
        """Why the driver has no connection to ask through: it says that only of connections that it tries just then."""
        if isinstance(error, NoHostAvailable) and not error.errors:
            try:
                self._cluster.connection_factory(self._cluster.endpoints_resolved[0]).close()
            except Exception as reason:  # whatever it is, it is for people
                explained: Exception = NoHostAvailable("", {self._where: reason})
                return explained
        return error


def _keyed(table: str, row: Mapping[str, Any]) -> KeyedRow:
    written = row.get("written")
    return KeyedRow(table, {name: value for name, value in row.items() if name != "written"}, written or 0)


def ring_of(owners: Iterable[Mapping[str, Any]], gossip: Iterable[Mapping[str, Any]] = ()) -> Ring:
    """The ring of the rows of system.local and system.peers_v2, and of system_views.gossip_info where it exists.

    A node that is only about to own tokens has a row in gossip alone; it stands in the ring without any. Raises
    RingError when nobody owns tokens.
    """
    states = {row["host_id"]: row for row in gossip if row["host_id"] is not None}
    owning = [row for row in owners if row["host_id"] is not None and row["tokens"]]
    nodes = {str(row["host_id"]): _node(row, states.get(str(row["host_id"]))) for row in owning}
    for host, state in states.items():
        if host not in nodes and _status(state) in _COMING:
            nodes[host] = Node(host, state["dc"] or "", (), normal=False)
    return Ring(tuple(nodes.values()))


def _node(row: Mapping[str, Any], state: Mapping[str, Any] | None) -> Node:
    tokens = tuple(int(text) for text in row["tokens"])
    return Node(str(row["host_id"]), row["data_center"], tokens, state is None or _status(state) in _NORMAL)


def _status(state: Mapping[str, Any]) -> str:
    """The first word of what gossip says of a node; 4.0 and later write it with ports and, for older ones, without."""
    return str(state["status_with_port"] or state["status"] or "").partition(",")[0]
