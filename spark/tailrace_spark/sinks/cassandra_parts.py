"""What sinks in a Cassandra cluster have in common: the store that they ask, user types, and their dead letters."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from tailrace_schemas.cql.types import CqlType, quote_identifier
from tailrace_schemas.errors import ServiceError, UnsupportedError
from tailrace_schemas.topics import table_of_topic
from tailrace_spark.sinks.cassandra import Batch, RefusedError
from tailrace_spark.sinks.log_layout import add_field_statement, create_type_statement, user_types
from tailrace_spark.sinks.protocol import DeadLetter

DEAD_LETTERS: Final = "tailrace_dead_letters"

log = logging.getLogger("tailrace_spark")


class Store(Protocol):
    """What such sinks ask of a cluster (tailrace_spark.sinks.cassandra.CassandraStore, which see)."""

    def connect(self) -> None: ...

    def columns(self, keyspace: str, table: str) -> Mapping[str, str]: ...

    def fields(self, keyspace: str, user_type: str) -> Mapping[str, str]: ...

    def define(self, statement: str) -> None: ...

    def write(self, batches: Iterable[Batch]) -> None: ...

    def close(self) -> None: ...


def make_types(store: Store, keyspace: str, types: Iterable[CqlType]) -> None:
    """Make the user types that columns of these types need, and widen those that lack fields.

    Raises UnsupportedError where one has other fields there, or in another order, such as after a field was renamed
    here, or of other types: values have their fields by place, as bytes, and would be read as something else.
    """
    for user_type in user_types(types):
        fields = store.fields(keyspace, user_type.name)
        if not fields:
            store.define(create_type_statement(keyspace, user_type))
            continue
        there = [f"{name} {kind}" for name, kind in fields.items()]
        own = [f"{name} {kind}" for name, kind in zip(user_type.fields, user_type.args, strict=True)]
        shared = min(len(there), len(own))
        if there[:shared] != own[:shared]:
            raise UnsupportedError(
                f"{quote_identifier(keyspace)}: type {user_type.name} has the fields {', '.join(there)} there, and "
                f"{', '.join(own)} are to be written, by their places: rename its fields there (ALTER TYPE ... "
                "RENAME), or write into another keyspace"
            )
        for name in user_type.fields[shared:]:
            store.define(add_field_statement(keyspace, user_type, name))


class Letters:
    """Notes records that are in no table, in `tailrace_dead_letters` of the keyspace of the table whose topic they
    are in; `keyspace_of` says that of a source's."""

    def __init__(self, store: Store, prefix: str, keyspace_of: Callable[[str], str]) -> None:
        self._store = store
        self._prefix = prefix
        self._keyspace_of = keyspace_of
        self._made: set[str] = set()

    def forget(self) -> None:
        """What the cluster has may have changed."""
        self._made.clear()

    def bury(self, letters: Sequence[DeadLetter]) -> None:
        """Raises ServiceError where the cluster does not answer, or lacks the keyspace."""
        if letters:
            log.warning("%d records are in no table; the first: %s", len(letters), _words(letters[0]))
        by_keyspace: dict[str, list[DeadLetter]] = {}
        for letter in letters:
            table = table_of_topic(self._prefix, letter.place.topic)
            if table is not None:
                by_keyspace.setdefault(self._keyspace_of(table[0]), []).append(letter)
        for keyspace, some in by_keyspace.items():
            place = f"{quote_identifier(keyspace)}.{DEAD_LETTERS}"
            try:
                if keyspace not in self._made:
                    self._store.define(_create_letters(place))
                    self._made.add(keyspace)
                self._store.write(Batch(_insert_letter(place), (_letter_row(letter),)) for letter in some)
            except RefusedError as error:
                raise ServiceError(f"{place}: {error}; the keyspace must exist") from error


def _create_letters(place: str) -> str:
    return (
        f"CREATE TABLE IF NOT EXISTS {place} (topic text, partition int, offset bigint, schema_id text, reason text, "
        "PRIMARY KEY ((topic, partition), offset))"
    )


def _insert_letter(place: str) -> str:
    return f"INSERT INTO {place} (topic, partition, offset, schema_id, reason) VALUES (?, ?, ?, ?, ?)"  # noqa: S608


def _letter_row(letter: DeadLetter) -> tuple[bytes, ...]:
    place = letter.place
    return (
        place.topic.encode(),
        struct.pack(">i", place.partition),
        struct.pack(">q", place.offset),
        place.schema_id.hex().encode(),
        letter.reason.encode(),
    )


def _words(letter: DeadLetter) -> str:
    return f"{letter.place.topic}, partition {letter.place.partition}, offset {letter.place.offset}: {letter.reason}"
