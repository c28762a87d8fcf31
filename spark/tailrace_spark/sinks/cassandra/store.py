"""What a sink asks of a Cassandra cluster, and makes there: user types, and tables of Tailrace's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol
from uuid import UUID

from tailrace_schemas.cql.types import CqlType, quote_identifier, user_types_in
from tailrace_schemas.errors import UnsupportedError
from tailrace_schemas.formats import require_format
from tailrace_spark.sinks.cassandra.cluster import Batch

FORMAT: Final = 1
"""What this version writes into each."""

_COMMENT: Final = "tailrace: format "


class Store(Protocol):
    """What such sinks ask of a cluster (tailrace_spark.sinks.cassandra.cluster.CassandraStore, which see)."""

    def connect(self) -> None: ...

    def has_keyspace(self, keyspace: str) -> bool: ...

    def columns(self, keyspace: str, table: str) -> Mapping[str, str]: ...

    def identity(self, keyspace: str, table: str) -> tuple[UUID, str] | None: ...

    def fields(self, keyspace: str, user_type: str) -> Mapping[str, str]: ...

    def define(self, statement: str) -> None: ...

    def write(self, batches: Iterable[Batch]) -> None: ...

    def select(self, statement: str, values: Sequence[str | int] = ()) -> Sequence[tuple[Any, ...]]: ...

    def close(self) -> None: ...


def make_types(store: Store, keyspace: str, types: Iterable[CqlType]) -> None:
    """Make the user types that columns of these types need, and widen those that lack fields.

    Raises UnsupportedError where one has other fields there, of other types or in another order, such as after a field
    was renamed here. Values have their fields by place, as bytes, and would be read as other fields.
    """
    for user_type in user_types_in(types):
        fields = store.fields(keyspace, user_type.name)
        if not fields:
            store.define(create_type_statement(keyspace, user_type))
            continue
        existing = [f"{name} {kind}" for name, kind in fields.items()]
        source_fields = [f"{name} {kind}" for name, kind in zip(user_type.fields, user_type.args, strict=True)]
        shared = min(len(existing), len(source_fields))
        if existing[:shared] != source_fields[:shared]:
            raise UnsupportedError(
                f"{quote_identifier(keyspace)}: type {user_type.name} has the fields {', '.join(existing)} there, and "
                f"{', '.join(source_fields)} are to be written, by their places: rename its fields there "
                "(ALTER TYPE ... RENAME), or write into another keyspace"
            )
        for name in user_type.fields[shared:]:
            store.define(add_field_statement(keyspace, user_type, name))


def create_type_statement(keyspace: str, user_type: CqlType) -> str:
    """CREATE TYPE of a user type."""
    fields = ", ".join(
        f"{quote_identifier(name)} {cql_type}" for name, cql_type in zip(user_type.fields, user_type.args, strict=True)
    )
    return f"CREATE TYPE IF NOT EXISTS {_type_name(keyspace, user_type)} ({fields})"


def add_field_statement(keyspace: str, user_type: CqlType, field: str) -> str:
    """ALTER TYPE that adds one field."""
    cql_type = user_type.args[user_type.fields.index(field)]
    return f"ALTER TYPE {_type_name(keyspace, user_type)} ADD {quote_identifier(field)} {cql_type}"


def _type_name(keyspace: str, user_type: CqlType) -> str:
    return f"{quote_identifier(keyspace)}.{quote_identifier(user_type.name)}"


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
