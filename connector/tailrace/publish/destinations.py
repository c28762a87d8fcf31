"""What must be there before a table's first change: its topic, its shape in `<prefix>.schemas`, a registry's ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol
from uuid import UUID

from tailrace.errors import HeldError
from tailrace.publish.routing import assign_topics
from tailrace_common.kafka.schema_registry import Part, RegistryRefusedError, SchemaRegistry, Subjects, subject_of
from tailrace_common.properties.passthrough import Scalar
from tailrace_schemas.avro import Encoder, SchemaEntry, SchemaIds
from tailrace_schemas.errors import SchemaRefusedError, ServiceError
from tailrace_schemas.table import Table


class Topics(Protocol):
    """Who creates topics."""

    def ensure_table(self, topic: str) -> int:
        """Create a table's topic where it is missing; its partitions. Raises ServiceError, SettingsError."""

    def limit(self, topic: str) -> int:
        """The most bytes of a batch of the topic: its max.message.bytes."""


class Log(Protocol):
    """An acknowledged append."""

    def append(self, key: bytes, value: bytes) -> object:
        """Append and wait. Raises ServiceError."""


def last_definitions(announced: Mapping[bytes, SchemaEntry]) -> dict[UUID, Table]:
    """The definition that `.schemas` has last of each table id: its newest (contracts.md 3, "Framing")."""
    entries = sorted(announced.values(), key=lambda entry: entry.announced)
    return {entry.table.id: entry.table for entry in entries if entry.part == "value"}


class SchemaDestinations:
    """The Destinations of a router, over what `<prefix>.schemas` had at the start."""

    def __init__(self, prefix: str, topics: Topics, log: Log, announced: Mapping[bytes, SchemaEntry]) -> None:
        self._prefix = prefix
        self._topics = topics
        self._log = log
        self._announced = set(announced)
        self._taken = {entry.topic: str(entry.table) for entry in announced.values()}
        values = sorted(
            (entry for entry in announced.values() if entry.part == "value"), key=lambda entry: entry.announced
        )
        self._newest = {entry.table.id: entry.schema_id for entry in values}

    def topic(self, table: Table) -> str:
        """The topic that `.schemas` has for the table's name, else one that collides with none."""
        # By name and not by id: a table that was dropped and made again keeps its topic.
        for topic, name in self._taken.items():
            if name == str(table):
                return topic
        name = assign_topics(self._prefix, (table,), self._taken)[table.id]
        self._taken[name] = str(table)
        return name

    def partitions(self, topic: str) -> int:
        """Create the topic where it is missing; its partitions."""
        return self._topics.ensure_table(topic)

    def limit(self, topic: str) -> int:
        """The most bytes of a batch of the topic."""
        return self._topics.limit(topic)

    def announce(self, table_id: UUID, schemas: list[tuple[bytes, bytes]], *, newest: bool = False) -> None:
        """Append what was not announced yet, acknowledged; the value's schema, the first, comes last.

        The `newest` definition of a table is appended again unless it is the last of the table's records. Only records
        count that were read at the start or appended here. If other agents' records counted, two that lag would
        answer each other for ever (contracts.md 3).
        """
        (value_id, _), *_ = schemas
        # The key's schema first, so that a crash in between leaves the value's to be announced, and with it the order.
        for key, value in reversed(schemas):
            again = newest and key == value_id and self._newest.get(table_id) != value_id
            if again or key not in self._announced:
                self._log.append(key, value)
                self._announced.add(key)
                if key == value_id:
                    self._newest[table_id] = value_id


class RegistryStore:
    """A registry of Confluent's API as the agent uses it: it names our schemas.

    Registers the schemas of table shapes, and remembers, by `known`, what `<prefix>.schemas` has of them.

    With `register` false, schemas are looked up only: somebody else registers them. One thread at a time; nothing
    connects before the first shape. Raises SettingsError for settings that the client refuses.
    """

    def __init__(
        self, config: Mapping[str, Scalar], subjects: Subjects, register: bool, announced: Mapping[bytes, SchemaEntry]
    ) -> None:
        self._subjects = subjects
        self._known = dict(announced)
        self._registry = SchemaRegistry(
            config, register=register, section="schemas.registry", setting="schemas.register_schemas"
        )

    def ids(self, encoder: Encoder, topic: str) -> SchemaIds:
        """The registry's ids of a shape's two schemas; both are accepted, or HeldError says what to do."""
        return SchemaIds(
            self._id(encoder, topic, "value", encoder.schema_text),
            self._id(encoder, topic, "key", encoder.key_schema_text),
        )

    def reach(self) -> str:
        """The registry's own compatibility rule, to see whether it answers us. Raises ServiceError."""
        return self._registry.reach()

    def close(self) -> None:
        """End its connections."""
        self._registry.close()

    def _id(self, encoder: Encoder, topic: str, part: Part, text: str) -> bytes:
        subject = subject_of(self._subjects, topic, part, text)
        table = encoder.table
        try:
            schema_id = self._registry.id_of(subject, text).to_bytes(4, "big")
        except (SchemaRefusedError, RegistryRefusedError) as error:
            raise HeldError(f"changes of {table} are held: {error}") from error
        except ServiceError as error:
            if (announced_id := self._before(topic, part, text)) is not None:
                return announced_id
            raise HeldError(f"changes of {table} are held: {error}") from error
        # Ids are the registry's own counter: another registry gives the same number to another schema.
        entry = self._known.get(schema_id)
        if entry is not None and entry.avro != text:
            raise HeldError(
                f"changes of {table} are held: the schema registry at {self._registry.url} gives subject {subject} the "
                f"id {int.from_bytes(schema_id, 'big')}, which is another schema's in our topic of schemas. Is it "
                "another registry than before? Then readers could not tell them apart: choose another topics.prefix "
                "for it"
            )
        return schema_id

    def _before(self, topic: str, part: Part, text: str) -> bytes | None:
        """The id under which a shape was announced, for the time while the registry does not answer."""
        for entry in self._known.values():
            if len(entry.schema_id) == 4 and (entry.topic, entry.part, entry.avro) == (topic, part, text):
                return entry.schema_id
        return None
