"""Messages to records: topic and partition, with everything there that a reader needs before the first one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol
from uuid import UUID

from mypy_extensions import i64

from tailrace.changes.transcode import Message
from tailrace.errors import HeldError, TooLargeError
from tailrace.publish.record import Record
from tailrace_common.backoff import Waits
from tailrace_schemas.avro import Encoder, SchemaIds, own_ids, schema_records
from tailrace_schemas.avro.frames import frame, reframed
from tailrace_schemas.avro.schema import KeyChoice, PrimaryKeys
from tailrace_schemas.change import Change, Deletion, Op, Source
from tailrace_schemas.digest import change_digest
from tailrace_schemas.errors import RecordTooLargeError, RefusedError, SettingsError
from tailrace_schemas.forms import PLAIN_FORMS, ValueForms
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table
from tailrace_schemas.tokens import first_token, partition
from tailrace_schemas.topics import Internal

Clock = Callable[[], float]
# What a batch of one record has around its key and value: 61 bytes, and a few of lengths and times.
_AROUND: Final = 128
_BARRED: Final = Waits(5.0, 300.0)


@dataclass(frozen=True, slots=True)
class _Bar:
    """A topic for which Kafka took nothing, and until when it is not tried again."""

    words: str
    refusals: int
    until: float


class Destinations(Protocol):
    """Where records go: topics are there and schemas known before the first record that needs them."""

    def topic(self, table: Table) -> str:
        """The name of the table's topic."""

    def partitions(self, topic: str) -> int:
        """How many partitions it has; it is created where it is missing. Raises ServiceError."""

    def limit(self, topic: str) -> int:
        """The most bytes that a batch of the topic may have, a single record with what is around it too."""

    def announce(self, table_id: UUID, schemas: list[tuple[bytes, bytes]], *, newest: bool = False) -> None:
        """Put those records into `<prefix>.schemas` that it lacks, and wait until they are acknowledged.

        The first is the value's schema. If it is the `newest` definition, it becomes the table's last record there.
        Raises ServiceError.
        """


class SchemaStore(Protocol):
    """Who names schemas."""

    def ids(self, encoder: Encoder, topic: str) -> SchemaIds:
        """The ids under which messages name a shape's schemas. Raises HeldError where they are refused."""

    def close(self) -> None:
        """End its connections, where it has any."""


class OwnIds:
    """The store without a registry: `<prefix>.schemas` alone, by the ids that schemas have by themselves."""

    def ids(self, encoder: Encoder, topic: str) -> SchemaIds:  # noqa: ARG002 - as the protocol has it
        """The schemas' own."""
        return own_ids(encoder)

    def close(self) -> None:
        """There are none."""


class _Route:
    """Where the changes of a definition go: `topic`, empty where they go nowhere, of so many partitions.
    `limit` is what key and value may have, in bytes.

    `ids` name its schemas, `plain` tells that messages have these ids, and their key, already.
    """

    def __init__(
        self,
        table: Table,
        topic: str = "",
        partitions: int = 1,
        limit: int = 0,
        ids: SchemaIds | None = None,
        own: bool = True,
    ) -> None:
        self.table = table
        self.topic = topic
        self.partitions: i64 = partitions
        self.limit: i64 = limit
        self._ids = ids
        self._own = own
        self._keys: PrimaryKeys | None = None
        self.plain = own

    def take_keys(self, keys: PrimaryKeys) -> None:
        """Kafka's key is the primary key."""
        self._keys, self.plain = keys, False

    def framed(self, message: Message) -> tuple[bytes | None, bytes]:
        """Kafka's key and value of a message that does not have them already."""
        ids, value = self._ids, message.value
        key: bytes | None = message.key
        if ids is None:
            return key, value
        if self._keys is not None:
            body = self._keys.body(value)
            key = None if body is None else frame(ids.key) + body
        elif not self._own:
            key = reframed(message.key, ids.key)
        return key, self.framed_value(value)

    def framed_value(self, value: bytes) -> bytes:
        """A value under the store's id for its schema."""
        return value if self._own or self._ids is None else reframed(value, self._ids.value)


class Router:
    """Makes records of messages. Everything that a table shape needs is done at its first one.

    `store` names the schemas; messages come with the schemas' own ids, and are framed again where it has others. They
    come with the partition key for Kafka's key; with `key` = "primary" it is the full primary key instead. `clock` is
    monotonic, in seconds. `forms` are those of the messages: they are part of the schemas that are announced.
    `newest` gives the last definition that the agent knows of a table id: `.schemas` ends with it.
    """

    def __init__(
        self,
        prefix: str,
        destinations: Destinations,
        wants: Callable[[Table], bool],
        store: SchemaStore | None = None,
        key: KeyChoice = "partition",
        clock: Clock = time.monotonic,
        forms: ValueForms = PLAIN_FORMS,
        newest: Callable[[UUID], Table | None] = lambda _: None,
    ) -> None:
        self._forms = forms
        self._newest = newest
        self._announced: dict[UUID, Table] = {}
        self._clock = clock
        self._key: KeyChoice = key
        self._prefix = prefix
        self._destinations = destinations
        self._wants = wants
        self._store = store or OwnIds()
        self._routes: dict[UUID, _Route] = {}
        self._last: _Route | None = None
        self._refused: dict[UUID, str] = {}
        self._barred: dict[str, _Bar] = {}
        self._keep: str | None = None

    def publishes(self, table: Table) -> bool:
        """Whether the table is selected."""
        return self._wants(table)

    def keep_unselected(self, words: str | None) -> None:
        """From now on changes of tables that are not selected are held, for this reason; None: they go nowhere."""
        self._keep = words
        self._last = None
        # Routes to nowhere were made under the other rule: they are looked up again.
        for id in [id for id, route in self._routes.items() if not route.topic]:
            del self._routes[id]

    def open(self, table: Table) -> bool:
        """Make topic and schema of a table ready, if it is published at all; what was refused before is tried again.
        Whether it was.

        Raises ServiceError, HeldError.
        """
        was_refused = self._refused.pop(table.id, None) is not None
        if self._route(table).topic:
            self._announce_newest(table.id)
        return was_refused

    def records(self, messages: Iterable[Message]) -> list[Record]:
        """The records of those messages whose table is published, in order. Raises ServiceError, HeldError."""
        records: list[Record] = []
        route = self._last
        for message in messages:
            # Most often the very definition of the one before.
            if route is None or message.table is not route.table:
                route = self._last = self._route(message.table)
            if not route.topic:
                continue
            # By the token, never from key bytes: each key mode, and readers in other languages, come to the same one
            # (contracts.md 4).
            kafka_partition = partition(message.token, route.partitions)
            key: bytes | None = message.key
            value = message.value
            if not route.plain:
                key, value = route.framed(message)
            # Both count: max.message.bytes is of the batch, and each record has both.
            if len(value) + (0 if key is None else len(key)) > route.limit:
                # Here and not by Kafka's answer: within a transaction that answer would cost the whole transaction.
                raise _too_large(route, key, value)
            records.append(Record(route.topic, kafka_partition, key, value))
        return records

    def truncation(self, table: Table, written: int, source: Source, upto: Position | None) -> list[Record]:
        """The records of a truncation at this time (microseconds), one for each partition, by its own first token; none
        where the table is not published. `upto`: see Change. Raises ServiceError, HeldError."""
        route = self._route(table)
        if not route.topic:
            return []
        encoder = Encoder(table, self._prefix, self._key, self._forms)
        # A truncation has no local deletion time: the second of truncated_at stands for it (contracts.md 3,
        # "truncate").
        deletion = Deletion(written, written // 1_000_000)
        change = Change(op=Op.TRUNCATE, table=table, token=0, key=None, deletion=deletion, source=source, upto=upto)
        change = replace(change, digest=change_digest(change))
        values = (
            encoder.value(replace(change, token=first_token(kafka_partition, route.partitions)))
            for kafka_partition in range(route.partitions)
        )
        return [
            Record(route.topic, kafka_partition, None, route.framed_value(value))
            for kafka_partition, value in enumerate(values)
        ]

    def refuse(self, topic: str, words: str) -> None:
        """Kafka takes nothing for a topic: its tables are held, and it is tried again after a while, then less often.
        What is no table's topic is passed over."""
        for id, route in list(self._routes.items()):
            if route.topic == topic:
                # Kept until `open`: a later change must not overtake those that wait for this topic.
                self._refused[id] = f"changes of {route.table} are held: {words}"
                del self._routes[id]
        self._last = None
        previous = self._barred.get(topic)
        refusals = 1 if previous is None else previous.refusals + 1
        self._barred[topic] = _Bar(words, refusals, self._clock() + _BARRED.after(refusals))

    def _route(self, table: Table) -> _Route:
        route = self._routes.get(table.id)
        if route is None or (route.table is not table and route.table != table):
            route = self._routes[table.id] = self._opened(table)
        return route

    def _opened(self, table: Table) -> _Route:
        """The route of a shape, made ready where it is published. Raises ServiceError, HeldError.

        Once refused it stays so until `open`. The registry is not asked again for each change, and no later change of
        the table overtakes those that wait.
        """
        if not self._wants(table):
            if self._keep is not None:
                raise HeldError(f"changes of {table} are kept: {self._keep}", table.id)
            return _Route(table)
        if table.id in self._refused:
            raise HeldError(self._refused[table.id], table.id)
        try:
            return self._prepare(table)
        except HeldError as error:
            self._refused[table.id] = str(error)
            self._routes.pop(table.id, None)
            self._last = None
            raise HeldError(str(error), table.id) from error

    def _prepare(self, table: Table) -> _Route:
        encoder = Encoder(table, self._prefix, self._key, self._forms)
        topic = self._destinations.topic(table)
        bar = self._barred.get(topic)
        if bar is not None and self._clock() < bar.until:
            raise HeldError(f"changes of {table} are held: {bar.words}", table.id)
        ids = self._store.ids(encoder, topic)  # first: what is refused leaves nothing behind
        try:
            partitions = self._destinations.partitions(topic)
        except (RefusedError, SettingsError) as error:
            raise HeldError(f"changes of {table} are held: {error}", table.id) from error
        limit = self._destinations.limit(topic) - _AROUND
        self._announce(encoder, topic, ids)
        self._announce_newest(table.id)
        route = _Route(table, topic, partitions, limit, ids, ids == own_ids(encoder))
        if self._key == "primary":
            route.take_keys(PrimaryKeys(table, self._prefix, self._forms))
        return route

    def _announce_newest(self, table_id: UUID) -> None:
        """Have the newest definition of a table stand last in `.schemas`, from where readers take its names.

        A definition may come back (a column renamed to and fro), and changes from before its DDL come under older ones.
        """
        table = self._newest(table_id)
        if table is None or self._announced.get(table_id) == table:
            return
        encoder = Encoder(table, self._prefix, self._key, self._forms)
        topic = self._destinations.topic(table)
        # Where it is refused, its own changes are held, and `open` says so.
        with suppress(HeldError):
            self._announce(encoder, topic, self._store.ids(encoder, topic))

    def _announce(self, encoder: Encoder, topic: str, ids: SchemaIds) -> None:
        table = encoder.table
        is_newest = table == self._newest(table.id)
        try:
            self._destinations.announce(table.id, schema_records(encoder, topic, ids), newest=is_newest)
        except RecordTooLargeError as error:
            raise HeldError(
                f"changes of {encoder.table} are held: its definition cannot be announced. {error}. Raise "
                f"max.message.bytes of topic {self._prefix}.{Internal.SCHEMAS} and topics.max_message_bytes, and start "
                "the agent again, or make the table narrower",
                encoder.table.id,
            ) from error
        self._announced[table.id] = table


def _too_large(route: _Route, key: bytes | None, value: bytes) -> TooLargeError:
    size = len(value) + len(key or b"")
    return TooLargeError(
        f"a change of {route.table} has {size} bytes, and topic {route.topic} takes {route.limit}: raise its "
        "max.message.bytes and topics.max_message_bytes, and start the agent again",
        route.table.id,
    )
