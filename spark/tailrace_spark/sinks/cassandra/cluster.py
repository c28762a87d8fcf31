"""A Cassandra or ScyllaDB cluster that sinks write to.

A request costs the driver far more than the values in it. So small mutations go together, as an unlogged batch, in
which the cluster takes each partition's as a mutation of its own. Neighbours on the ring go together: they have the
same replicas, but where two ranges meet. The limits are those from which Cassandra warns of a batch
(`unlogged_batch_across_partitions_warn_threshold`, `batch_size_warn_threshold`). What is larger goes alone: of one
partition Cassandra takes any batch, whatever its size (BatchStatement.verifyBatchSize).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from cassandra import AlreadyExists, ConsistencyLevel, InvalidRequest
from cassandra.cluster import Cluster, ExecutionProfile, Session
from cassandra.concurrent import execute_concurrent
from cassandra.policies import DCAwareRoundRobinPolicy, TokenAwarePolicy
from cassandra.protocol import ConfigurationException, SyntaxException
from cassandra.query import UNSET_VALUE, BatchStatement, BatchType, BoundStatement, PreparedStatement, tuple_factory

from tailrace_common.cassandra_driver import driver, failed, said
from tailrace_schemas.errors import ServiceError
from tailrace_spark.sinks.cassandra.cql import ABSENT, Mutation, Part, Value
from tailrace_spark.sinks.cassandra.settings import CassandraTargetSettings

# Such as a type that an older cluster does not know: vector<float, 3> is no syntax before 5.0.
_REFUSALS: Final = (InvalidRequest, ConfigurationException, SyntaxException)
_FIRST_UNSET: Final = 4  # the native protocol's first version in which a value may be left out without being deleted


_MOST_STATEMENTS: Final = 65_535  # the native protocol counts those of a batch in two bytes
MOST_MUTATIONS: Final = 10
MOST_BYTES: Final = 4 << 10
"""As `Mutation.weight` counts them, which is more than Cassandra counts; it warns from 5 KiB on."""


class RefusedError(Exception):
    """The cluster refuses a statement as such: its values or names are at fault, and it would refuse it again."""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of a table's primary key there: `kind` as system_schema says it."""

    name: str
    kind: str
    descending: bool


class CassandraStore:
    """A connection to one cluster, made when it is first needed. One thread at a time.

    Everything raises ServiceError where the cluster does not answer, with what the driver said, and RefusedError
    where it refuses what was asked of it.
    """

    def __init__(self, settings: CassandraTargetSettings, section: str) -> None:
        """`section` names the settings in messages. Raises SettingsError for TLS files that cannot be read."""
        self._settings = settings
        self._tls = settings.tls_context(section)
        self._cluster: Cluster | None = None
        self._session: Session | None = None
        self._prepared: dict[str, PreparedStatement] = {}

    def connect(self) -> None:
        """Connect if that has not been done."""
        if self._session is not None:
            return
        cluster = _driver(self._settings, self._tls)
        try:
            self._session = cluster.connect()
        except Exception as error:
            cluster.shutdown()
            raise self._failed(error) from error
        self._cluster = cluster

    def columns(self, keyspace: str, table: str) -> Mapping[str, str]:
        """The types of a table's columns by name, as the cluster prints them; empty where there is no such table."""
        rows = self.execute(
            "SELECT column_name, type FROM system_schema.columns WHERE keyspace_name = %s AND table_name = %s",
            (keyspace, table),
        )
        return dict(rows)

    def has_keyspace(self, keyspace: str) -> bool:
        """Whether there is such a keyspace."""
        query = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = %s"
        return bool(self.execute(query, (keyspace,)))

    def layout(self, keyspace: str, table: str) -> tuple[Sequence[KeyColumn], frozenset[str]]:
        """A table's primary key, in its order, and its static columns; empty where there is no such table."""
        rows = self.execute(
            "SELECT kind, position, column_name, clustering_order FROM system_schema.columns WHERE keyspace_name = %s "
            "AND table_name = %s",
            (keyspace, table),
        )
        key = sorted((row for row in rows if row[1] >= 0), key=lambda row: (row[0] != "partition_key", row[1]))
        static = frozenset(name for kind, _, name, _ in rows if kind == "static")
        return tuple(KeyColumn(name, kind, order == "desc") for kind, _, name, order in key), static

    def identity(self, keyspace: str, table: str) -> tuple[UUID, str] | None:
        """The id and the comment of a table; None where there is no such table."""
        rows = self.execute(
            "SELECT id, comment FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s",
            (keyspace, table),
        )
        return (rows[0][0], rows[0][1]) if rows else None

    def fields(self, keyspace: str, user_type: str) -> Mapping[str, str]:
        """The types of a user type's fields by name, in their order; empty where there is no such type."""
        rows = self.execute(
            "SELECT field_names, field_types FROM system_schema.types WHERE keyspace_name = %s AND type_name = %s",
            (keyspace, user_type),
        )
        return dict(zip(*rows[0], strict=True)) if rows else {}

    def define(self, statement: str) -> None:
        """Run a statement that makes or alters a table or type; the driver waits until the nodes agree."""
        with suppress(AlreadyExists):  # another stream was faster
            self.execute(statement)

    def apply(self, mutations: Iterable[Mutation]) -> None:
        """Write mutations in any order, small ones together; some of them may be written where it raises."""
        self.connect()
        assert self._session is not None  # noqa: S101 - connect made it
        statements = [(self._statement(parts), ()) for parts in requests(mutations)]
        try:
            execute_concurrent(
                self._session, statements, concurrency=self._settings.concurrency, raise_on_first_error=True
            )
        except _REFUSALS as error:
            raise RefusedError(said(error)) from error
        except Exception as error:
            raise self._failed(error) from error

    def execute(self, statement: str, values: tuple[str | int, ...] | None = None) -> list[tuple[Any, ...]]:
        """The rows of a statement, all of them; `%s` in it stand for the values."""
        self.connect()
        assert self._session is not None  # noqa: S101 - connect made it
        try:
            return list(self._session.execute(statement, values))
        except AlreadyExists:
            raise
        except _REFUSALS as error:
            raise RefusedError(said(error)) from error
        except Exception as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """End the driver's threads and connections."""
        cluster, self._cluster, self._session = self._cluster, None, None
        self._prepared.clear()
        if cluster is not None:
            cluster.shutdown()

    def _statement(self, parts: Sequence[Part]) -> BoundStatement | BatchStatement:
        if len(parts) > _MOST_STATEMENTS:
            raise RefusedError(
                f"the protocol takes {_MOST_STATEMENTS} statements together, and these are {len(parts)} statements"
            )
        bound = [self._bind(statement, values) for statement, values in parts]
        if len(bound) == 1:
            return bound[0]
        together = BatchStatement(batch_type=BatchType.UNLOGGED)
        for bound_statement in bound:
            together.add(bound_statement)
        return together

    def _bind(self, statement: str, row: Sequence[Value]) -> BoundStatement:
        """Cassandra's own bytes as they are; the driver would only make them again, and not always the same."""
        prepared = self._prepare(statement)
        bound = BoundStatement(prepared)
        absent = UNSET_VALUE if prepared.protocol_version >= _FIRST_UNSET else None
        bound.values = [absent if value is ABSENT else value for value in row]
        return bound

    def _prepare(self, statement: str) -> PreparedStatement:
        prepared = self._prepared.get(statement)
        if prepared is None:
            assert self._session is not None  # noqa: S101 - who prepares has connected
            try:
                prepared = self._prepared[statement] = self._session.prepare(statement)
            except _REFUSALS as error:
                raise RefusedError(said(error)) from error
            except Exception as error:
                raise self._failed(error) from error
        return prepared

    def _failed(self, error: Exception) -> ServiceError:
        return failed(self._settings, error)


def _driver(settings: CassandraTargetSettings, tls: Any) -> Cluster:
    policy = TokenAwarePolicy(DCAwareRoundRobinPolicy(local_dc=settings.datacenter or ""))
    profile = ExecutionProfile(
        load_balancing_policy=policy,
        consistency_level=ConsistencyLevel.name_to_value[settings.consistency],
        request_timeout=settings.request_timeout_seconds,
        row_factory=tuple_factory,
    )
    return driver(settings, tls, profile)


def requests(mutations: Iterable[Mutation]) -> Iterator[tuple[Part, ...]]:
    """The statements of each request: those of neighbouring small mutations, or of one that is larger."""
    together: list[Part] = []
    count = weight = 0
    for mutation in sorted(mutations, key=_token):
        added = mutation.weight
        if count and (count == MOST_MUTATIONS or weight + added > MOST_BYTES):
            yield tuple(together)
            together = []
            count = weight = 0
        together += mutation.statements
        count += 1
        weight += added
    if together:
        yield tuple(together)


def _token(mutation: Mutation) -> int:
    return mutation.token
