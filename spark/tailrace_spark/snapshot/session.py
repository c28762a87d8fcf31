"""A cluster that is read: its ring, estimates and definitions for the driver, pages of rows for tasks.

The one module of this package that imports cassandra-driver. A worker process keeps its connections for later tasks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final

from cassandra import ConsistencyLevel, OperationTimedOut, ReadTimeout, Unavailable
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.connection import ConnectionException
from cassandra.policies import (
    ConstantReconnectionPolicy,
    DCAwareRoundRobinPolicy,
    FallthroughRetryPolicy,
    NoSpeculativeExecutionPolicy,
)
from cassandra.protocol import (
    IsBootstrappingErrorMessage,
    OverloadedErrorMessage,
    ResultMessage,
    _ProtocolHandler,
)
from cassandra.query import BoundStatement, PreparedStatement, dict_factory

from tailrace_common.secrets import redact
from tailrace_common.unreachable import unreachable
from tailrace_schemas.definitions import tables_from_rows
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.table import Table
from tailrace_spark.sinks.worker_cache import WorkerCache
from tailrace_spark.snapshot.estimate import SAMPLE_ROWS, Sample, sample_of
from tailrace_spark.snapshot.pace import Fault
from tailrace_spark.snapshot.page import PageColumns
from tailrace_spark.snapshot.ranges import Estimates, TokenRange, ring_ranges
from tailrace_spark.snapshot.reading import Page, PageError, PageStateError
from tailrace_spark.snapshot.settings import SnapshotSettings

log = logging.getLogger("tailrace_spark")
_MURMUR3: Final = "Murmur3Partitioner"
_TIMEOUTS: Final = (OperationTimedOut, ReadTimeout)
_UNREACHABLE: Final = (NoHostAvailable, Unavailable, ConnectionException, IsBootstrappingErrorMessage)


class PendingPage:
    """A page that was asked for."""

    def __init__(self, future: Any, requested_at: int) -> None:
        self._future = future
        self._requested_at = requested_at

    def get(self) -> Page:
        """Wait for it. Raises PageError where asking again may help, ServiceError where it does not."""
        try:
            [page] = self._future.result().current_rows
        except Exception as error:
            raise _page_error(error) from error
        paging_state = self._future._paging_state  # noqa: SLF001 - ResultSet has it under a longer way
        return Page(page, len(page.data), paging_state, self._requested_at)


class _Columns(ResultMessage):  # type: ignore[misc]  # the driver has no types
    """Rows as the node sent them: nothing of the driver decodes a value."""

    def recv_results_rows(
        self, f: Any, protocol_version: int, user_type_map: Any, result_metadata: Any, policy: Any = None
    ) -> None:
        """Take the rows of a page as they are; `parsed_rows` has one item, their columns."""
        del protocol_version, policy
        self.recv_results_metadata(f, user_type_map)
        columns = self.column_metadata or result_metadata
        self.column_names = [column[2] for column in columns]
        self.column_types = [column[3] for column in columns]
        data = f.read()
        self.parsed_rows = [PageColumns(bytes(data), len(columns))]


class _ColumnsHandler(_ProtocolHandler):  # type: ignore[misc]  # the driver has no types
    message_types_by_opcode: Final = {**_ProtocolHandler.message_types_by_opcode, ResultMessage.opcode: _Columns}


@dataclass(frozen=True, slots=True)
class Ring:
    """What a read is planned by: ranges with the ids of their replicas' hosts, those first that are up.

    Replicas are those of one datacenter.
    """

    owned: tuple[tuple[TokenRange, tuple[str, ...]], ...]
    estimates: Estimates
    datacenter: str


class ClusterView:
    """The driver's connection to a cluster: what is to be read, and where it is. Closed by `close`."""

    def __init__(self, settings: SnapshotSettings) -> None:
        self._settings = settings
        self._cluster = _driver(settings, metadata=True)
        self._session = _connected(self._cluster, settings)

    def close(self) -> None:
        """End the driver's threads and connections."""
        self._cluster.shutdown()

    def table(self) -> Table:
        """The definition of the table that is read. Raises SettingsError where there is none."""
        table = self.find(*self._settings.name)
        if table is None:
            raise SettingsError(f"Cassandra at {_where(self._settings)} has no table {self._settings.table}")
        return table

    def find(self, keyspace: str, name: str) -> Table | None:
        """The definition of a table or view as it is now; None where there is none. Raises SettingsError, ServiceError.

        SettingsError is for a definition that cannot be read.
        """
        rows = {
            table: self._rows(f"SELECT * FROM system_schema.{table} WHERE keyspace_name = %s", keyspace)  # noqa: S608
            for table in ("tables", "views", "columns", "dropped_columns", "types")
        }
        definitions = tables_from_rows(**rows)
        for table in definitions.tables:
            if (table.keyspace, table.name) == (keyspace, name):
                return table
        for problem in definitions.problems:
            if problem.table == f"{keyspace}.{name}":
                raise SettingsError(f"the definition of {problem}")
        return None

    def tables_with_cdc(self) -> list[Table]:
        """The definitions of all tables and views that have cdc = true now. Raises SettingsError, ServiceError."""
        names = sorted(name for name, cdc in self.cdc_by_name().items() if cdc)
        return [table for name in names if (table := self.find(*name)) is not None]

    def cdc_by_name(self) -> dict[tuple[str, str], bool]:
        """Whether each table and view has cdc = true now, by keyspace and name. Raises ServiceError."""
        rows = self._rows("SELECT keyspace_name, table_name, cdc FROM system_schema.tables")
        rows += self._rows("SELECT keyspace_name, view_name AS table_name, cdc FROM system_schema.views")
        return {(row["keyspace_name"], row["table_name"]): bool(row["cdc"]) for row in rows}

    def check(self, statement: str) -> None:
        """Have the cluster look at a statement before tasks run it. Raises ServiceError where it refuses it."""
        try:
            self._session.prepare(statement)
        except Exception as error:
            raise _page_error(error) from error

    def sample(self, query: str, token_range: TokenRange) -> Sample:
        """How many rows the begin of a range has; `query` selects tokens of a range. Raises ServiceError."""
        try:
            prepared = self._session.prepare(query)
            bound = BoundStatement(prepared, fetch_size=SAMPLE_ROWS)
            bound.values = [token.to_bytes(8, "big", signed=True) for token in (token_range.start, token_range.end)]
            page = self._session.execute(bound)
        except Exception as error:
            raise _failed(self._settings, error) from error
        tokens = [next(iter(row.values())) for row in page.current_rows]
        return sample_of(token_range, tokens, is_whole=not page.has_more_pages)

    def ring(self, table: tuple[str, str] | None = None) -> Ring:
        """The ring as it is now, for a table: by default the one of the settings.

        Raises SettingsError where its tokens are not murmur3's, or nobody is up.
        """
        metadata = self._cluster.metadata
        if not str(metadata.partitioner).endswith(_MURMUR3):
            raise SettingsError(f"the cluster has {metadata.partitioner}; only tables of {_MURMUR3} are read")
        keyspace, name = table or self._settings.name
        token_map = metadata.token_map
        replicas = {token.value: token_map.get_replicas(keyspace, token) for token in token_map.ring}
        owned = [(token_range, self._ordered(replicas[token])) for token_range, token in ring_ranges(replicas)]
        return Ring(tuple(owned), self._estimates(keyspace, name), self._datacenter)

    def release(self) -> tuple[int, int]:
        """The oldest release of any node, such as (5, 0)."""
        versions = [str(host.release_version) for host in self._cluster.metadata.all_hosts() if host.release_version]
        parsed = [tuple(int(digits) for digits in release.split("-")[0].split(".")[:2]) for release in versions]
        oldest = min(parsed, default=(0, 0))
        return oldest[0], oldest[1]

    def _ordered(self, hosts: Sequence[Any]) -> tuple[str, ...]:
        """The ids of a range's replicas in the datacenter that is read, in the ring's order, those down last."""
        local = [host for host in hosts if host.datacenter == self._datacenter]
        return tuple([str(host.host_id) for host in sorted(local, key=lambda host: host.is_up is False)])

    @property
    def _datacenter(self) -> str:
        return self._settings.datacenter or str(self._cluster.get_control_connection_host().datacenter)

    def _estimates(self, keyspace: str, name: str) -> Estimates:
        query = (
            "SELECT range_start, range_end, mean_partition_size, partitions_count FROM system.size_estimates "
            "WHERE keyspace_name = %s AND table_name = %s"
        )
        sizes: list[tuple[int, int, int, int]] = []
        for host in self._cluster.metadata.all_hosts():
            if host.datacenter != self._datacenter or host.is_up is False:
                continue
            try:
                rows = self._session.execute(query, (keyspace, name), host=host)
            except Exception as error:
                log.warning(
                    "could not read the table's sizes from %s; its ranges count like those of other nodes: %s",
                    host.address,
                    _reason(error),
                )
                continue
            sizes += [
                (int(row["range_start"]), int(row["range_end"]), row["mean_partition_size"], row["partitions_count"])
                for row in rows
            ]
        return Estimates.of(sizes)

    def _rows(self, query: str, *values: str) -> list[Any]:
        try:
            return list(self._session.execute(query, values))
        except Exception as error:
            raise _failed(self._settings, error) from error


class PageSource:
    """A worker process's connection to a cluster, which gives pages. Tasks of a process use it one after the other."""

    def __init__(self, settings: SnapshotSettings) -> None:
        self._settings = settings
        self._cluster = _driver(settings, metadata=False)
        self._session = _connected(self._cluster, settings)
        self._session.client_protocol_handler = _ColumnsHandler
        self._session.default_fetch_size = None
        self._prepared: dict[str, PreparedStatement] = {}

    def close(self) -> None:
        """End the driver's threads and connections."""
        self._cluster.shutdown()

    def request(
        self, statement: str, token_range: TokenRange, rows: int, paging_state: bytes | None, host: str | None
    ) -> PendingPage:
        """Ask for a page: of the node with this host id, or for None, or where it is not known, of any."""
        tokens = [token.to_bytes(8, "big", signed=True) for token in (token_range.start, token_range.end)]
        return self.select(statement, tokens, rows, paging_state, host)

    def select(
        self,
        statement: str,
        values: Sequence[bytes | None],
        rows: int,
        paging_state: bytes | None = None,
        host: str | None = None,
    ) -> PendingPage:
        """Ask for a page of any SELECT; `values` are the bytes of what is bound. Raises as `PendingPage.get`."""
        bound = BoundStatement(self._prepare(statement), fetch_size=rows)
        bound.values = list(values)
        now = time.time_ns() // 1000
        try:
            future = self._session.execute_async(bound, paging_state=paging_state, host=self._node(host))
        except Exception as error:
            raise _page_error(error) from error
        return PendingPage(future, now)

    def _node(self, host: str | None) -> Any:
        hosts = self._cluster.metadata.all_hosts() if host is not None else ()
        return next((node for node in hosts if str(node.host_id) == host), None)

    def _prepare(self, statement: str) -> PreparedStatement:
        prepared = self._prepared.get(statement)
        if prepared is None:
            try:
                prepared = self._prepared[statement] = self._session.prepare(statement)
            except Exception as error:
                raise _page_error(error) from error
        return prepared


@dataclass(frozen=True, slots=True)
class _Contact:
    """What a connection is opened from: those settings that make it another one."""

    names: tuple[object, ...]
    settings: SnapshotSettings = field(compare=False, repr=False)


_SOURCES: Final = WorkerCache[_Contact, PageSource](lambda contact: PageSource(contact.settings))


def page_source(settings: SnapshotSettings) -> AbstractContextManager[PageSource]:
    """This process's connection to a cluster, opened when it is first asked for. Raises ServiceError."""
    return _SOURCES.borrowed(_Contact(_contact(settings), settings))


def _contact(settings: SnapshotSettings) -> tuple[object, ...]:
    """What makes a connection another one."""
    names = (
        "contact_points", "port", "username", "password", "protocol_version", "connect_timeout_seconds",
        "request_timeout_seconds", "tls", "tls_ca_file", "tls_certificate_file", "tls_key_file", "tls_key_password",
        "tls_verify_host", "datacenter", "consistency",
    )  # fmt: skip
    return tuple([getattr(settings, name) for name in names])


def _where(settings: SnapshotSettings) -> str:
    return f"{settings.contact_points[0]}:{settings.port}"


def _failed(settings: SnapshotSettings, error: Exception) -> ServiceError:
    node, words = f"Cassandra at {_where(settings)}", _reason(error)
    return unreachable(node, words, "Cassandra", "cluster.contact_points") or ServiceError(f"{node}: {words}")


def _connected(cluster: Cluster, settings: SnapshotSettings) -> Session:
    try:
        return cluster.connect()
    except Exception as error:
        cluster.shutdown()
        raise _failed(settings, error) from error


def _driver(settings: SnapshotSettings, *, metadata: bool) -> Cluster:
    profile = ExecutionProfile(
        load_balancing_policy=DCAwareRoundRobinPolicy(local_dc=settings.datacenter or ""),
        consistency_level=ConsistencyLevel.name_to_value[settings.consistency],
        request_timeout=settings.request_timeout_seconds,
        # Whether, where and with how many rows a page is asked for again is decided in `reading`.
        retry_policy=FallthroughRetryPolicy(),
        speculative_execution_policy=NoSpeculativeExecutionPolicy(),
        row_factory=dict_factory if metadata else _unchanged,
    )
    auth = None
    if settings.username is not None and settings.password is not None:
        auth = PlainTextAuthProvider(settings.username, settings.password.get_secret_value())
    protocol = {} if settings.protocol_version is None else {"protocol_version": settings.protocol_version}
    logging.getLogger("cassandra.cluster").addFilter(_not_downgrading)
    return Cluster(
        list(settings.contact_points),
        port=settings.port,
        auth_provider=auth,
        ssl_context=settings.tls_context("tailrace-snapshot"),
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        reconnection_policy=ConstantReconnectionPolicy(1.0, max_attempts=None),
        connect_timeout=settings.connect_timeout_seconds,
        # Of the driver's own questions about the cluster: two seconds by default, less than a busy node needs.
        control_connection_timeout=settings.request_timeout_seconds,
        schema_metadata_enabled=metadata,
        token_metadata_enabled=metadata,
        **protocol,
    )


def _unchanged(names: Sequence[str], rows: Any) -> Any:
    del names
    return rows


def _page_error(error: Exception) -> Exception:
    """PageError where asking again may help, PageStateError where it begins elsewhere, else ServiceError."""
    fault = _fault_of(error)
    if fault is not None:
        return PageError(fault, _reason(error))
    if "paging state" in str(error).lower():
        return PageStateError(_reason(error))
    advice = "; allow_filtering = true adds it" if "ALLOW FILTERING" in str(error) else ""
    return ServiceError(f"Cassandra refuses to read: {_reason(error)}{advice}")


def _fault_of(error: Exception) -> Fault | None:
    """What a failed request says of the next one; None: it would fail again."""
    if isinstance(error, _TIMEOUTS):
        return Fault.TIMEOUT
    if isinstance(error, OverloadedErrorMessage):
        return Fault.OVERLOADED
    return Fault.UNREACHABLE if isinstance(error, (*_UNREACHABLE, OSError)) else None


def _reason(error: Exception) -> str:
    """In one line, without secrets."""
    return redact(" ".join(str(error).split()) or type(error).__name__)[:500]


def _not_downgrading(record: logging.LogRecord) -> bool:
    """The driver warns of each protocol version that it tries in vain: that is how it negotiates."""
    return not str(record.msg).startswith("Downgrading core protocol version")
