"""Cassandra's driver as both halves set it up, and what its failures mean."""

from __future__ import annotations

import logging
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace_common.secrets import redact
from tailrace_common.sections.cassandra import CassandraSettings
from tailrace_common.unreachable import unreachable
from tailrace_schemas.errors import ServiceError


@contextmanager
def _numpy_hidden() -> Iterator[None]:
    """The driver imports numpy wherever it is installed, for a form of rows that nobody asks for here: 12 MB of an
    agent's memory. What imports numpy later gets it."""
    if "numpy" in sys.modules:
        yield
        return
    sys.modules["numpy"] = None  # type: ignore[assignment]  # documented: importing it raises ModuleNotFoundError
    try:
        yield
    finally:
        del sys.modules["numpy"]


with _numpy_hidden():
    from cassandra import UnresolvableContactPoints
    from cassandra.auth import PlainTextAuthProvider
    from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
    from cassandra.policies import ConstantReconnectionPolicy


def failed(settings: CassandraSettings, error: Exception, address: str = "its address") -> ServiceError:
    """What a failure of the driver means; `address` is as `unreachable` has it."""
    node, words = f"Cassandra at {settings.location}", said(error)
    return unreachable(node, words, "Cassandra", address) or ServiceError(f"{node}: {words}")


def said(error: object) -> str:
    """In one line, without secrets."""
    return redact(" ".join(str(error).split()) or type(error).__name__)[:500]


def driver(
    settings: CassandraSettings, tls: ssl.SSLContext | None, profile: ExecutionProfile, **options: object
) -> Cluster:
    """The driver, not connected yet, with other options of its `Cluster`. `tls` is the settings' context, or None.

    `contact_points` among the options count over the settings'. Raises ServiceError where no name of these is known.
    """
    auth = None
    if settings.username is not None and settings.password is not None:
        auth = PlainTextAuthProvider(settings.username, settings.password.get_secret_value())
    if settings.protocol_version is not None:
        options["protocol_version"] = settings.protocol_version
    try:
        return Cluster(
            options.pop("contact_points", list(settings.contact_points)),
            port=settings.port,
            auth_provider=auth,
            ssl_context=tls,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            reconnection_policy=ConstantReconnectionPolicy(1.0, max_attempts=None),
            connect_timeout=settings.connect_timeout_seconds,
            # Of the driver's own questions about the cluster: two seconds by default, less than a busy node needs.
            control_connection_timeout=settings.request_timeout_seconds,
            **options,
        )
    except UnresolvableContactPoints as error:
        raise failed(settings, OSError("name or service not known")) from error


def _not_downgrading(record: logging.LogRecord) -> bool:
    """The driver warns of each protocol version that it tries in vain, DSE's first: that is how it negotiates."""
    return not str(record.msg).startswith("Downgrading core protocol version")


logging.getLogger("cassandra.cluster").addFilter(_not_downgrading)
