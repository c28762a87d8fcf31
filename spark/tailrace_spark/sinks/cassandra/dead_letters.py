"""`tailrace_dead_letters`: what a sink in a Cassandra cluster set aside, kept in that cluster."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from tailrace_schemas.cql.types import quote_identifier
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.topics import keyspace_of_topic
from tailrace_spark.batch.dead_letters import log_put
from tailrace_spark.batch.delivery import DeadLetter, RecordId
from tailrace_spark.sinks.cassandra.cluster import Batch, RefusedError
from tailrace_spark.sinks.cassandra.own_tables import make_table, require_readable
from tailrace_spark.sinks.cassandra.store import Store

DEAD_LETTERS: Final = "tailrace_dead_letters"
_COLUMNS: Final = (
    "topic text, partition int, offset bigint, schema_id text, reason text, message blob, "
    "PRIMARY KEY ((topic, partition), offset)"
)
_EARLIER_COLUMNS: Final = frozenset({"topic", "partition", "offset", "schema_id", "reason"})


class CassandraDeadLetters:
    """A DeadLetterStore: each is a row under its place in Kafka, in the keyspace of the table whose topic it came by.

    `keyspace_of` gives that of a source's keyspace; `name` is the table's. A record of no table's topic is not kept.
    """

    def __init__(self, store: Store, prefix: str, keyspace_of: Callable[[str], str], name: str = DEAD_LETTERS) -> None:
        self._store = store
        self._prefix = prefix
        self._keyspace_of = keyspace_of
        self._name = name
        self._made: set[str] = set()

    def reach(self) -> None:
        """Raises SettingsError where a later version made one of the tables."""
        self._partitions()

    def forget(self) -> None:
        """What the cluster has may have changed."""
        self._made.clear()

    def put(self, letters: Sequence[DeadLetter]) -> None:
        """As DeadLetterStore says; the newer one of a record stays. An absent keyspace is a ServiceError too."""
        log_put(letters, self._name)
        for keyspace, keyspace_letters in self._by_keyspace(letters).items():
            table = self._table(keyspace)
            try:
                if keyspace not in self._made:
                    self._make(keyspace)
                    self._made.add(keyspace)
                self._store.write(Batch(_insert_letter(table), (_letter_row(letter),)) for letter in keyspace_letters)
            except RefusedError as error:
                raise ServiceError(f"{table}: {error}; the keyspace must exist") from error

    def remove(self, letters: Sequence[DeadLetter]) -> None:
        for keyspace, keyspace_letters in self._by_keyspace(letters).items():
            table = self._table(keyspace)
            try:
                self._store.write(
                    Batch(_delete_letter(table), (_key_row(letter.record_id),)) for letter in keyspace_letters
                )
            except RefusedError as error:
                raise ServiceError(f"{table}: {error}") from error

    def list(self, after: RecordId | None, limit: int) -> Sequence[DeadLetter]:
        letters: list[DeadLetter] = []
        try:
            for topic, partition, keyspace, has_message in self._partitions():
                if after is not None and (topic, partition) < (after.topic, after.partition):
                    continue
                is_partition_of_after = after is not None and (topic, partition) == (after.topic, after.partition)
                after_offset = after.offset if after is not None and is_partition_of_after else -1
                rows = self._store.select(
                    f"SELECT offset, schema_id, reason{', message' if has_message else ''} "  # noqa: S608
                    f"FROM {self._table(keyspace)} WHERE topic = %s AND partition = %s AND offset > %s LIMIT %s",
                    (topic, partition, after_offset, limit - len(letters)),
                )
                letters += [_dead_letter(topic, partition, *row) for row in rows]
                if len(letters) == limit:
                    break
        except RefusedError as error:
            raise ServiceError(f"{self._name}: {error}") from error
        return letters

    def _partitions(self) -> Sequence[tuple[str, int, str, bool]]:
        """Topic, partition and keyspace of all letters of this prefix, in their order, and whether they have bytes.

        A table of an earlier version has no column for these. Raises SettingsError for one of a later version.
        """
        named = "SELECT keyspace_name FROM system_schema.tables WHERE table_name = %s ALLOW FILTERING"
        partitions: list[tuple[str, int, str, bool]] = []
        for (keyspace,) in self._store.select(named, (self._name,)):
            columns = self._store.columns(keyspace, self._name)
            if not columns.keys() >= _EARLIER_COLUMNS:
                continue  # somebody else's
            require_readable(self._store, keyspace, self._name)
            keys = f"SELECT DISTINCT topic, partition FROM {self._table(keyspace)}"  # noqa: S608
            for topic, partition in self._store.select(keys):
                if self._keyspace(topic) == keyspace:
                    partitions.append((topic, partition, keyspace, "message" in columns))
        return sorted(partitions)

    def _make(self, keyspace: str) -> None:
        require_readable(self._store, keyspace, self._name)
        columns = self._store.columns(keyspace, self._name)
        if not columns:
            make_table(self._store, keyspace, self._name, _COLUMNS)
        elif "message" not in columns:
            self._store.define(f"ALTER TABLE {self._table(keyspace)} ADD message blob")

    def _by_keyspace(self, letters: Iterable[DeadLetter]) -> Mapping[str, Sequence[DeadLetter]]:
        by_keyspace: dict[str, list[DeadLetter]] = {}
        for letter in letters:
            keyspace = self._keyspace(letter.record_id.topic)
            if keyspace is not None:
                by_keyspace.setdefault(keyspace, []).append(letter)
        return by_keyspace

    def _keyspace(self, topic: str) -> str | None:
        keyspace = keyspace_of_topic(self._prefix, topic)
        return None if keyspace is None else self._keyspace_of(keyspace)

    def _table(self, keyspace: str) -> str:
        return f"{quote_identifier(keyspace)}.{self._name}"


def _insert_letter(table: str) -> str:
    columns = "topic, partition, offset, schema_id, reason, message"
    return f"INSERT INTO {table} ({columns}) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608


def _delete_letter(table: str) -> str:
    return f"DELETE FROM {table} WHERE topic = ? AND partition = ? AND offset = ?"  # noqa: S608


def _key_row(record_id: RecordId) -> tuple[bytes, ...]:
    return record_id.topic.encode(), struct.pack(">i", record_id.partition), struct.pack(">q", record_id.offset)


def _letter_row(letter: DeadLetter) -> tuple[bytes | None, ...]:
    schema, reason = letter.record_id.schema_id.hex().encode(), letter.reason.encode()
    return (*_key_row(letter.record_id), schema, reason, letter.message or None)


def _dead_letter(
    topic: str, partition: int, offset: int, schema: str | None, reason: str, message: bytes | None = None
) -> DeadLetter:
    return DeadLetter(RecordId(topic, partition, offset, bytes.fromhex(schema or "")), reason, message or b"")
