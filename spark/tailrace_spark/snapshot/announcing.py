"""What has to be in Kafka before a snapshot's first change: the topics, and the table's definition in `.schemas`."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from fnmatch import fnmatchcase

from tailrace_common.kafka.schema_registry import subject_of
from tailrace_common.kafka.topics import TopicMaker
from tailrace_common.settings import Settings
from tailrace_common.topics import SchemaReader
from tailrace_schemas.avro import Encoder, SchemaEntry, SchemaIds, own_ids, schema_records
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import Internal, TopicPlan, internal_plan, internal_topic, table_plan, table_topic
from tailrace_spark.sinks.kafka.record import KafkaRecord
from tailrace_spark.snapshot.publishing import Destination


class Announcer:
    """Makes topics and announces definitions, as the settings say. `topics.create` = false leaves that to others."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._kafka = settings.kafka.reveal()
        self._topics = TopicMaker(self._kafka)

    def prepare(self) -> None:
        """Make the topics that are not a table's. Raises SettingsError, ServiceError."""
        for internal in (Internal.SCHEMAS, Internal.SNAPSHOTS):
            self._ensured(internal_plan(self._settings.topics, internal))

    def announce(self, table: Table) -> tuple[Destination, list[KafkaRecord]]:
        """Where a table's changes go; the topic is there then. The records announce what is not announced yet.

        Raises SettingsError where `tables` leaves the table out, ServiceError.
        """
        settings = self._settings
        self._require_selected(table)
        encoder = Encoder(table, settings.topics.prefix, settings.topics.key, settings.avro.forms())
        with SchemaReader(self._kafka, settings.topics.prefix) as schemas:
            schemas.refresh()
            entries = dict(schemas)
        topic = _topic_of(settings.topics.prefix, table, entries.values())
        partitions = self._ensured(table_plan(settings.topics, topic))
        ids = self._ids(encoder, topic)
        destination = Destination(
            self._kafka,
            settings.topics.prefix,
            topic,
            partitions,
            ids,
            settings.topics.key,
            settings.avro.forms(),
            settings.topics.max_message_bytes,
            settings.agent.transaction_timeout_seconds,
        )
        name = internal_topic(settings.topics.prefix, Internal.SCHEMAS)
        value, key = schema_records(encoder, topic, ids)
        records = [KafkaRecord(name, 0, *key)] if key[0] not in entries else []
        # The definition was read just now: it is to be the table's newest (contracts.md 3).
        if _newest(table, entries.values()) != value[0]:
            records.append(KafkaRecord(name, 0, *value))
        return destination, records

    def _ensured(self, plan: TopicPlan) -> int:
        """How many partitions a topic has, which is made where it is missing."""
        return self._topics.ensure_planned(plan, create=self._settings.topics.create)

    def _require_selected(self, table: Table) -> None:
        tables, name = self._settings.tables, str(table)
        if not _matches(tables.include, name) or _matches(tables.exclude, name):
            raise SettingsError(f"tables.include and tables.exclude leave {name} out: nothing of it is published")

    def _ids(self, encoder: Encoder, topic: str) -> SchemaIds:
        schemas = self._settings.schemas
        if schemas.store == "topic":
            return own_ids(encoder)
        try:
            from tailrace_common.kafka.schema_registry import SchemaRegistry
        except ImportError as cause:
            raise SettingsError(
                f"schemas.store = \"registry\" needs {cause.name}: pip install 'tailrace[registry]'"
            ) from None
        registry = SchemaRegistry(
            schemas.registry.reveal(),
            register=schemas.register_schemas,
            section="schemas.registry",
            setting="schemas.register_schemas",
        )
        with closing(registry):
            value = registry.id_of(
                subject_of(schemas.subjects, topic, "value", encoder.schema_text), encoder.schema_text
            )
            key = registry.id_of(
                subject_of(schemas.subjects, topic, "key", encoder.key_schema_text), encoder.key_schema_text
            )
        return SchemaIds(value.to_bytes(4, "big"), key.to_bytes(4, "big"))


def _matches(patterns: Iterable[str], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _topic_of(prefix: str, table: Table, entries: Iterable[SchemaEntry]) -> str:
    """The topic that `.schemas` has for the table's name, else one that collides with none."""
    names = {entry.topic: str(entry.table) for entry in entries}
    for topic, name in names.items():
        if name == str(table):
            return topic
    return table_topic(prefix, table.keyspace, table.name, table.id, names)


def _newest(table: Table, entries: Iterable[SchemaEntry]) -> bytes | None:
    """The id of the table's newest definition."""
    values = [entry for entry in entries if entry.part == "value" and entry.table.id == table.id]
    newest = max(values, key=lambda entry: entry.announced, default=None)
    return None if newest is None else newest.schema_id
