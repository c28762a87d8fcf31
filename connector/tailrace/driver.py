"""cassandra-driver, set up to follow one node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from tailrace_common.cassandra_driver import driver, said

# isort: split
# Behind what keeps the driver from importing numpy.
from cassandra import AuthenticationFailed, DriverException, OperationTimedOut, Unauthorized
from cassandra.cluster import Cluster, ConsistencyLevel, ExecutionProfile, NoHostAvailable, Session
from cassandra.connection import ConnectionException, DefaultEndPoint
from cassandra.metadata import Metadata
from cassandra.policies import HostFilterPolicy, HostStateListener, RoundRobinPolicy
from cassandra.query import BatchStatement, BatchType, dict_factory

from tailrace.errors import ForbiddenError
from tailrace_common.sections.cassandra import CassandraSettings
from tailrace_common.unreachable import unreachable
from tailrace_schemas.errors import ServiceError

__all__ = [
    "BatchStatement",
    "BatchType",
    "ConsistencyLevel",
    "NoHostAvailable",
    "RingListener",
    "Session",
    "driver_of_node",
    "failure_of",
]

RingListener = Callable[[str, bool], None]
_SYSTEM_TABLES: Final = (
    "grant cluster.username SELECT on it, and on system_views: there stands who joins, leaves or moves"
)


class _Events(Metadata):  # type: ignore[misc]  # the driver has no types
    """The driver's picture of the schema, reduced to the news that it changed.

    The driver calls `refresh` for each schema event, and in whole after each (re)connection of its control connection,
    when events may have been missed. Its own model of every table would cost memory and have no use here.
    """

    def __init__(self, listener: Callable[[str], None]) -> None:
        super().__init__()
        self._listener = listener

    def refresh(
        self,
        connection: Any,
        timeout: Any,
        target_type: str | None = None,
        change_type: str | None = None,
        **changed: Any,
    ) -> None:
        """Pass on what changed, for people; a reader has to read the schema in whole anyway."""
        del connection, timeout
        names = [str(changed[name]) for name in ("keyspace", "table", "type", "view") if changed.get(name)]
        self._listener(" ".join((target_type or "connection", ".".join(names), change_type or "")).strip())


class _Connection(Cluster.connection_class):  # type: ignore[misc]  # the driver has no types
    """Takes a refused login for a failed connection: after the one the driver tries again, after the other never."""

    @classmethod
    def factory(cls, *arguments: Any, **named: Any) -> Any:
        """A connection. Raises what the driver does, but AuthenticationFailed."""
        try:
            return super().factory(*arguments, **named)
        except AuthenticationFailed as error:
            raise ConnectionException(str(error)) from error


class _Presence(HostStateListener):  # type: ignore[misc]  # the driver has no types
    """Tells of the connection's end, of its return (by then queries are answered again), and of the ring's nodes.

    The driver says the same of all nodes, though it connects to one only: which of them went or came is left open.
    """

    def __init__(self, listener: Callable[[str], None], ring_listener: RingListener) -> None:
        self._listener = listener
        self._ring_listener = ring_listener

    def on_down(self, host: Any) -> None:
        """The driver gave the node up for now."""
        self._listener("connection lost")
        self._ring_listener(f"{host.address} down", False)

    def on_up(self, host: Any) -> None:
        """It has connections to it again."""
        self._listener("connection back")
        self._ring_listener(f"{host.address} up", False)

    def on_add(self, host: Any) -> None:
        """A node joined the ring."""
        self._ring_listener(f"{host.address} joined", True)

    def on_remove(self, host: Any) -> None:
        """A node left it."""
        self._ring_listener(f"{host.address} left", True)


def driver_of_node(
    settings: CassandraSettings, listener: Callable[[str], None], ring_listener: RingListener
) -> Cluster:
    """A driver that connects to the first address alone, keeps its connection, and tells the listeners (LiveCluster).

    Raises SettingsError for files of TLS that cannot be read.
    """
    seconds = settings.request_timeout_seconds
    # By its name, which each connection looks up again: a container that is made anew has another address. Of a text
    # the driver would keep the addresses of now, and raise where there is none yet.
    node = DefaultEndPoint(settings.contact_points[0], settings.port)
    profile = ExecutionProfile(
        load_balancing_policy=HostFilterPolicy(RoundRobinPolicy(), lambda host: host.endpoint == node),
        consistency_level=ConsistencyLevel.ONE,
        request_timeout=seconds,
        row_factory=dict_factory,
    )
    cluster = driver(
        settings,
        settings.tls_context("cluster"),
        profile,
        contact_points=[node],
        connection_class=_Connection,
        # Events are to arrive at once, and singly; agreement between nodes is not asked: this node's schema counts.
        schema_event_refresh_window=0,
        max_schema_agreement_wait=0,
        topology_event_refresh_window=1,
        token_metadata_enabled=False,
        # Nothing else notices a connection through which nothing comes; the driver's own are 30 seconds each.
        idle_heartbeat_interval=max(1, round(seconds)),
        idle_heartbeat_timeout=seconds,
    )
    cluster.metadata = _Events(listener)
    cluster.register_listener(_Presence(listener, ring_listener))
    return cluster


def failure_of(where: str, error: Exception, unauthorized: str = _SYSTEM_TABLES) -> ServiceError:
    """What a failure of the driver means, and what to do. `unauthorized`: where it is the role's."""
    reasons: Iterable[object] = [error]
    if isinstance(error, NoHostAvailable) and error.errors:
        reasons = error.errors.values() if isinstance(error.errors, Mapping) else error.errors
    text = "; ".join(map(said, reasons))
    if (no_connection := unreachable(f"Cassandra at {where}", text, "the node", "cluster.contact_points")) is not None:
        return no_connection
    if isinstance(error, OperationTimedOut):
        advice = "is the node overloaded? cluster.request_timeout_seconds says how long it may take"
    elif isinstance(error, Unauthorized):
        return ForbiddenError(f"Cassandra at {where}: {text}; {unauthorized}")
    elif isinstance(error, NoHostAvailable | DriverException | OSError):
        advice = "is the node up, are cluster.contact_points, port, tls and credentials right?"
    else:
        advice = "may this role read system and system_schema?"
    return ServiceError(f"Cassandra at {where}: {text}; {advice}")
