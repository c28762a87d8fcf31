"""`tailrace_dead_letters`: what a sink in a Cassandra cluster set aside, kept in that cluster."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from tailrace_schemas.cql.types import quote_identifier
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.topics import table_of_topic
from tailrace_spark.batch.delivery import DeadLetter, RecordId
from tailrace_spark.sinks.cassandra.cluster import Batch, RefusedError
from tailrace_spark.sinks.cassandra.store import Store

DEAD_LETTERS: Final = "tailrace_dead_letters"
_EARLIER_COLUMNS: Final = frozenset({"topic", "partition", "offset", "schema_id", "reason"})

log = logging.getLogger("tailrace_spark")


class Letters:
    """Records that are in no table, in a table of the keyspace of the table whose topic they are in.

    `keyspace_of` says that of a source's; `name` is the letters' table. Each is a row under its place in Kafka.
    """

    def __init__(self, store: Store, prefix: str, keyspace_of: Callable[[str], str], name: str = DEAD_LETTERS) -> None:
        self._store = store
        self._prefix = prefix
        self._keyspace_of = keyspace_of
        self._name = name
        self._made: set[str] = set()

    def forget(self) -> None:
        """What the cluster has may have changed."""
        self._made.clear()

    def bury(self, letters: Sequence[DeadLetter]) -> None:
        """Raises ServiceError where the cluster does not answer, or lacks the keyspace."""
        if letters:
            log.warning("%d records could not be written (dead letters); first: %s", len(letters), _words(letters[0]))
        for keyspace, some in self._by_keyspace(letters).items():
            place = self._place(keyspace)
            try:
                if keyspace not in self._made:
                    self._make(keyspace)
                    self._made.add(keyspace)
                self._store.write(Batch(_insert_letter(place), (_letter_row(letter),)) for letter in some)
            except RefusedError as error:
                raise ServiceError(f"{place}: {error}; the keyspace must exist") from error

    def exhume(self, letters: Sequence[DeadLetter], kept: Collection[RecordId]) -> None:
        """Let go of letters, but not of those of these places. Raises ServiceError."""
        stay = {place.key for place in kept}
        gone = [letter for letter in letters if letter.record_id.key not in stay]
        for keyspace, some in self._by_keyspace(gone).items():
            place = self._place(keyspace)
            try:
                self._store.write(Batch(_delete_letter(place), (_key_row(letter.record_id),)) for letter in some)
            except RefusedError as error:
                raise ServiceError(f"{place}: {error}") from error

    def buried(self, after: RecordId | None, most: int) -> Sequence[DeadLetter]:
        """So many at most, by topic, partition and offset, behind a place. Raises ServiceError."""
        found: list[DeadLetter] = []
        try:
            for topic, partition, keyspace, bytes_too in self._partitions():
                if after is not None and (topic, partition) < (after.topic, after.partition):
                    continue
                same = after is not None and (topic, partition) == (after.topic, after.partition)
                behind = after.offset if after is not None and same else -1
                message = ", message" if bytes_too else ""
                rows = self._store.select(
                    f"SELECT offset, schema_id, reason{message} FROM {self._place(keyspace)} "  # noqa: S608
                    "WHERE topic = %s AND partition = %s AND offset > %s LIMIT %s",
                    (topic, partition, behind, most - len(found)),
                )
                found += [
                    DeadLetter(
                        RecordId(topic, partition, offset, bytes.fromhex(schema or "")),
                        reason,
                        (*octets, None)[0] or b"",
                    )
                    for offset, schema, reason, *octets in rows
                ]
                if len(found) == most:
                    break
        except RefusedError as error:
            raise ServiceError(f"{self._name}: {error}") from error
        return found

    def _partitions(self) -> list[tuple[str, int, str, bool]]:
        """Topic, partition and keyspace of all letters of this prefix, in their order, and whether the table there has
        a column for their bytes, which one of an earlier version has not."""
        named = "SELECT keyspace_name FROM system_schema.tables WHERE table_name = %s ALLOW FILTERING"
        found: list[tuple[str, int, str, bool]] = []
        for (keyspace,) in self._store.select(named, (self._name,)):
            there = self._store.columns(keyspace, self._name)
            if not there.keys() >= _EARLIER_COLUMNS:
                continue  # somebody else's
            keys = f"SELECT DISTINCT topic, partition FROM {self._place(keyspace)}"  # noqa: S608
            for topic, partition in self._store.select(keys):
                if self._keyspace(topic) == keyspace:
                    found.append((topic, partition, keyspace, "message" in there))
        return sorted(found)

    def _make(self, keyspace: str) -> None:
        place = self._place(keyspace)
        there = self._store.columns(keyspace, self._name)
        if not there:
            self._store.define(_create_letters(place))
        elif "message" not in there:
            self._store.define(f"ALTER TABLE {place} ADD message blob")

    def _by_keyspace(self, letters: Iterable[DeadLetter]) -> dict[str, list[DeadLetter]]:
        found: dict[str, list[DeadLetter]] = {}
        for letter in letters:
            keyspace = self._keyspace(letter.record_id.topic)
            if keyspace is not None:
                found.setdefault(keyspace, []).append(letter)
        return found

    def _keyspace(self, topic: str) -> str | None:
        table = table_of_topic(self._prefix, topic)
        return None if table is None else self._keyspace_of(table[0])

    def _place(self, keyspace: str) -> str:
        return f"{quote_identifier(keyspace)}.{self._name}"


def _create_letters(place: str) -> str:
    return (
        f"CREATE TABLE IF NOT EXISTS {place} (topic text, partition int, offset bigint, schema_id text, reason text, "
        "message blob, PRIMARY KEY ((topic, partition), offset))"
    )


def _insert_letter(place: str) -> str:
    columns = "topic, partition, offset, schema_id, reason, message"
    return f"INSERT INTO {place} ({columns}) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608


def _delete_letter(place: str) -> str:
    return f"DELETE FROM {place} WHERE topic = ? AND partition = ? AND offset = ?"  # noqa: S608


def _key_row(place: RecordId) -> tuple[bytes, ...]:
    return place.topic.encode(), struct.pack(">i", place.partition), struct.pack(">q", place.offset)


def _letter_row(letter: DeadLetter) -> tuple[bytes | None, ...]:
    told = letter.record_id.schema_id.hex().encode(), letter.reason.encode()
    return (*_key_row(letter.record_id), *told, letter.message or None)


def _words(letter: DeadLetter) -> str:
    record_id = letter.record_id
    return f"{record_id.topic}, partition {record_id.partition}, offset {record_id.offset}: {letter.reason}"
