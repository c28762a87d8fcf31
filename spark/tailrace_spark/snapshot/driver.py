"""Cassandra's driver as snapshots use it: how it connects, what a failed request means, and pages of rows for tasks.

The one module of this package that imports cassandra-driver. A worker process keeps its connections for later tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

from cassandra import ConsistencyLevel, OperationTimedOut, ReadFailure, ReadTimeout, Unauthorized, Unavailable
from cassandra.cluster import Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.connection import ConnectionException
from cassandra.policies import (
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

from tailrace_common.cassandra_driver import driver, failed, said
from tailrace_common.column_masks import Rows, can_mask, masked_columns, masked_words
from tailrace_schemas.errors import ServiceError
from tailrace_spark.sinks.worker_cache import WorkerCache
from tailrace_spark.snapshot.pace import Fault
from tailrace_spark.snapshot.page import PageColumns, read_columns
from tailrace_spark.snapshot.reading import ForbiddenError, Page, PageError, PageStateError, UnreadableError
from tailrace_spark.snapshot.selection import Release
from tailrace_spark.snapshot.settings import SnapshotSettings, settings_at

ADDRESS: Final = "cluster.contact_points"
"""The setting that errors name."""


class PendingPage:
    """A page that is asked for by `send`, which gives the driver's future, until `believes` its node and the time."""

    def __init__(self, send: Callable[[], Any], believes: Callable[[Any, int], bool]) -> None:
        self._send = send
        self._believes = believes
        self._request()

    def _request(self) -> None:
        self._requested_at = _now()
        try:
            self._future = self._send()
        except Exception as error:
            raise page_error(error) from error

    def get(self) -> Page:
        """Wait for it. Raises PageError where asking again may help, ServiceError where it does not."""
        try:
            [page] = self._future.result().current_rows
            while not self._believes(self._future.coordinator_host, self._requested_at):
                self._request()
                [page] = self._future.result().current_rows
        except Exception as error:
            raise page_error(error) from error
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


class PageSource:
    """A worker process's connection to a cluster, which gives pages. Tasks of a process use it one after the other."""

    def __init__(self, settings: SnapshotSettings) -> None:
        self._settings = settings
        self._cluster = driver_of(settings, metadata=False)
        self._session = connected(self._cluster, settings)
        self._session.client_protocol_handler = _ColumnsHandler
        self._session.default_fetch_size = None
        self._prepared: dict[str, PreparedStatement] = {}
        self._unmasked_since: dict[tuple[str, Any], int] = {}
        """Since when a node was seen to give what is stored, by statement and node, in microseconds."""

    def close(self) -> None:
        """End the driver's threads and connections."""
        self._cluster.shutdown()

    def select(
        self,
        statement: str,
        values: Sequence[bytes | None],
        rows: int,
        paging_state: bytes | None = None,
        host: str | None = None,
    ) -> PendingPage:
        """Ask for a page of any SELECT; `values` are the bytes of what is bound. Raises as `PendingPage.get`."""
        prepared = self._prepare(statement)
        bound = BoundStatement(prepared, fetch_size=rows)
        bound.values = list(values)
        send = partial(self._session.execute_async, bound, paging_state=paging_state, host=self._node(host))
        return PendingPage(send, partial(self._believes, prepared))

    def _believes(self, prepared: PreparedStatement, node: Any, requested_at: int) -> bool:
        """Whether a page that has come from a node is what is stored: masks and rights are looked at around it.

        Behind it, for a mask or a lost right may have come meanwhile; before it, for a grant may have.
        """
        if not may_mask(self._settings, node):
            return True
        key = (prepared.query_string, node.host_id)
        since = self._unmasked_since.pop(key, None)
        require_unmasked(self._settings, prepared, node, partial(self._texts, node))
        now = _now()
        # A clock that was set back would else have each page asked for again until it is where it was.
        self._unmasked_since[key] = now if since is None else min(since, now)
        return since is not None and since <= requested_at

    def _texts(self, node: Any, query: str) -> list[tuple[str, ...]]:
        """The rows of a query all of whose columns are texts, by one node. Raises as `PendingPage.get`."""
        try:
            pages = self._session.execute(query, host=node).current_rows
        except Exception as error:
            raise page_error(error) from error
        rows = [row for page in pages for row in zip(*read_columns(*page), strict=True)]
        return [tuple([(value or b"").decode() for value in row]) for row in rows]

    def _node(self, host: str | None) -> Any:
        hosts = self._cluster.metadata.all_hosts() if host is not None else ()
        return next((node for node in hosts if str(node.host_id) == host), None)

    def _prepare(self, statement: str) -> PreparedStatement:
        prepared = self._prepared.get(statement)
        if prepared is None:
            try:
                prepared = self._prepared[statement] = self._session.prepare(statement)
            except Exception as error:
                raise page_error(error) from error
        return prepared


_SOURCES: Final = WorkerCache[SnapshotSettings, PageSource](PageSource)


def page_source(settings: SnapshotSettings) -> AbstractContextManager[PageSource]:
    """This process's connection to a cluster, opened when it is first asked for. Raises ServiceError."""
    # Of the settings those alone that make it another connection.
    options = {name: getattr(settings, name) for name in ("datacenter", "consistency", "allow_masked_values")}
    return _SOURCES.borrowed(settings_at(settings, table="system.local", **options))


def _now() -> int:
    return time.time_ns() // 1000


def connected(cluster: Cluster, settings: SnapshotSettings) -> Session:
    """A session of a cluster. Raises ServiceError, and the cluster is shut down then."""
    try:
        return cluster.connect()
    except Exception as error:
        cluster.shutdown()
        raise failed(settings, error, ADDRESS) from error


def driver_of(settings: SnapshotSettings, *, metadata: bool) -> Cluster:
    """The driver, not connected yet; `metadata`: it knows ring and schema, and rows are dictionaries."""
    profile = ExecutionProfile(
        load_balancing_policy=DCAwareRoundRobinPolicy(local_dc=settings.datacenter or ""),
        consistency_level=ConsistencyLevel.name_to_value[settings.consistency],
        request_timeout=settings.request_timeout_seconds,
        # Whether, where and with how many rows a page is asked for again is decided in `reading`.
        retry_policy=FallthroughRetryPolicy(),
        speculative_execution_policy=NoSpeculativeExecutionPolicy(),
        row_factory=dict_factory if metadata else _unchanged,
    )
    return driver(
        settings,
        settings.tls_context("tailrace-snapshot"),
        profile,
        schema_metadata_enabled=metadata,
        token_metadata_enabled=metadata,
    )


def may_mask(settings: SnapshotSettings, node: Any) -> bool:
    """Whether a node may give masked values, and nobody wants them."""
    return not settings.allow_masked_values and can_mask(str(node.release_version))


def require_unmasked(settings: SnapshotSettings, prepared: PreparedStatement, node: Any, rows: Rows) -> None:
    """Raise UnreadableError where a node gives masked values of what a statement selects."""
    selected = prepared.result_metadata or ()
    if not selected or not may_mask(settings, node):
        return
    keyspace, table = selected[0][:2]
    masked = set(masked_columns(rows, keyspace, table))
    columns = [name for _, _, name, _ in selected if name in masked]
    words = masked_words(rows, keyspace, table, columns, settings.username) if columns else None
    if words is not None:
        raise UnreadableError(words)


def release_of(host: Any) -> Release:
    """The release of a node, such as (5, 0, 9)."""
    return tuple([int(digits) for digits in str(host.release_version).split("-")[0].split(".")[:3]])


def _unchanged(names: Sequence[str], rows: Any) -> Any:
    del names
    return rows


def page_error(error: Exception) -> Exception:
    """PageError where asking again may help, PageStateError where it begins elsewhere, else ServiceError."""
    if isinstance(error, ServiceError | PageError):
        return error
    for fault, errors in _FAULTS:
        if isinstance(error, errors):
            return PageError(fault, said(error))
    if "paging state" in str(error).lower():
        return PageStateError(said(error))
    advice = "; allow_filtering = true adds it" if "ALLOW FILTERING" in str(error) else ""
    refused = ForbiddenError if isinstance(error, Unauthorized) else ServiceError
    return refused(f"Cassandra refuses to read: {said(error)}{advice}")


def service_error(error: Exception) -> ServiceError:
    """As `page_error`, where nobody asks for a page again."""
    explained = page_error(error)
    return explained if isinstance(explained, ServiceError) else ServiceError(str(explained))


_FAULTS: Final = (
    (Fault.TIMEOUT, (OperationTimedOut, ReadTimeout)),
    (Fault.FAILED, (ReadFailure,)),
    (Fault.OVERLOADED, (OverloadedErrorMessage,)),
    (Fault.UNREACHABLE, (NoHostAvailable, Unavailable, ConnectionException, IsBootstrappingErrorMessage, OSError)),
)
"""What failed requests say of the next one, in the order in which that is looked at; others would fail again."""
