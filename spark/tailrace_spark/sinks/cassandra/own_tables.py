"""Tables of Tailrace's own in a cluster: made where they are missing, with the number of their form in the comment."""

from __future__ import annotations

from typing import Final

from tailrace_schemas.cql.types import quote_identifier
from tailrace_schemas.formats import require_format
from tailrace_spark.sinks.cassandra.store import Store

FORMAT: Final = 1
"""What this version writes into each."""

_COMMENT: Final = "tailrace: format "


def require_readable(store: Store, keyspace: str, name: str) -> None:
    """Raises SettingsError for a table of another version. One that is not there is none."""
    identity = store.identity(keyspace, name)
    if identity is not None:
        noted = identity[1].removeprefix(_COMMENT)
        require_format(f"the table {keyspace}.{name}", int(noted) if noted.isdigit() else noted, FORMAT)


def make_table(store: Store, keyspace: str, name: str, columns: str) -> None:
    """Make a table of these columns and this key; another stream may have made it meanwhile. Raises RefusedError."""
    store.define(
        f"CREATE TABLE IF NOT EXISTS {quote_identifier(keyspace)}.{name} ({columns}) "
        f"WITH comment = '{_COMMENT}{FORMAT}'"
    )
