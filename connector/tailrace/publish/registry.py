"""The ids that a registry of Confluent's API gives the schemas of a table's shape.

Needs what the extra `registry` brings, so that nobody imports it who names no registry.
"""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.errors import HeldError
from tailrace_common.kafka.schema_registry import RegistryRefusedError, SchemaRegistry
from tailrace_common.properties.passthrough import Scalar
from tailrace_schemas.avro import Encoder, SchemaEntry, SchemaIds
from tailrace_schemas.avro.names import Part, Subjects, subject_of
from tailrace_schemas.errors import SchemaRefusedError, ServiceError


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
            return self._registry.own_id(subject, text, self._known)
        except (SchemaRefusedError, RegistryRefusedError) as error:
            raise HeldError(f"changes of {table} are held: {error}") from error
        except ServiceError as error:
            if (announced_id := self._before(topic, part, text)) is not None:
                return announced_id
            raise HeldError(f"changes of {table} are held: {error}") from error

    def _before(self, topic: str, part: Part, text: str) -> bytes | None:
        """The id under which a shape was announced, for the time while the registry does not answer."""
        for entry in self._known.values():
            if len(entry.schema_id) == 4 and (entry.topic, entry.part, entry.avro) == (topic, part, text):
                return entry.schema_id
        return None
