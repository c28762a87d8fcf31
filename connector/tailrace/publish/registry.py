"""A registry of Confluent's API as the agent uses it: it names our schemas. Imports confluent_kafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from tailrace.errors import HeldError
from tailrace_common.passthrough import Scalar
from tailrace_common.secrets import redact
from tailrace_schemas.avro import Encoder, SchemaEntry, SchemaIds
from tailrace_schemas.avro.subjects import Part, Subjects, subject_of
from tailrace_schemas.errors import ServiceError, SettingsError

# The agent retries by itself, and while the client waits, a transaction may be open: less than its time-out.
_DEFAULTS: Final[Mapping[str, Scalar]] = {"timeout": 5, "max.retries": 0}
_CONFLICT: Final = 409
_NOT_FOUND: Final = 404
_UNPROCESSABLE: Final = 422


class RegistryStore:
    """Registers the schemas of table shapes, and remembers, by `known`, what `<prefix>.schemas` has of them.

    With `register` false, schemas are looked up only: somebody else registers them. One thread at a time; nothing
    connects before the first shape. Raises SettingsError for settings that the client refuses.
    """

    def __init__(
        self, config: Mapping[str, Scalar], subjects: Subjects, register: bool, known: Mapping[bytes, SchemaEntry]
    ) -> None:
        self._url = str(config["url"])
        self._subjects = subjects
        self._register = register
        self._known = dict(known)
        try:
            self._client = SchemaRegistryClient({**_DEFAULTS, **config})
        except (ValueError, TypeError, OSError) as error:
            raise SettingsError(f"[schemas.registry]: {redact(str(error))}") from None

    def ids(self, encoder: Encoder, topic: str) -> SchemaIds:
        """The registry's ids of a shape's two schemas; both are accepted, or HeldError says what to do."""
        return SchemaIds(
            self._id(encoder, topic, "value", encoder.schema_text),
            self._id(encoder, topic, "key", encoder.key_schema_text),
        )

    def reach(self) -> str:
        """The registry's own compatibility rule, to see whether it answers us. Raises ServiceError."""
        try:
            return str(self._client.get_compatibility())
        except Exception as error:
            said = redact(str(error) or type(error).__name__)
            raise ServiceError(f"the schema registry at {self._url}: {said}") from error

    def close(self) -> None:
        """End its connections."""
        self._client.close()

    def _id(self, encoder: Encoder, topic: str, part: Part, text: str) -> bytes:
        subject = subject_of(self._subjects, topic, part, text)
        table = encoder.table
        try:
            found = self._ask(subject, Schema(text, "AVRO")).to_bytes(4, "big")
        except SchemaRegistryError as error:
            raise HeldError(f"changes of {table} are held: {self._refusal(subject, error)}") from error
        except Exception as error:
            if (before := self._before(topic, part, text)) is not None:
                return before
            raise HeldError(
                f"changes of {table} are held: the schema registry at {self._url} does not answer: "
                f"{redact(str(error) or type(error).__name__)}; see [schemas.registry]"
            ) from error
        entry = self._known.get(found)
        if entry is not None and entry.avro != text:
            raise HeldError(
                f"changes of {table} are held: the schema registry at {self._url} gives subject {subject} the id "
                f"{int.from_bytes(found, 'big')}, which is another schema's in our topic of schemas: is it another "
                "registry than before? Then readers could not tell them apart: choose another topics.prefix for it"
            )
        return found

    def _ask(self, subject: str, schema: Schema) -> int:
        if self._register:
            return int(self._client.register_schema(subject, schema))
        found: Any = self._client.lookup_schema(subject, schema)
        return int(found.schema_id)

    def _before(self, topic: str, part: Part, text: str) -> bytes | None:
        """The id under which a shape was announced, for the time while the registry does not answer."""
        for entry in self._known.values():
            if len(entry.schema_id) == 4 and (entry.topic, entry.part, entry.avro) == (topic, part, text):
                return entry.schema_id
        return None

    def _refusal(self, subject: str, error: SchemaRegistryError) -> str:
        said = f"{redact(str(error.error_message))} (HTTP {error.http_status_code})"
        if error.http_status_code == _CONFLICT:
            return (
                f"the table's new schema breaks the rule of subject {subject}, which is {self._rule(subject)}: "
                f"{said}. Relax the rule of {subject} (NONE takes everything), or register the schema by hand; "
                "then they go on by themselves"
            )
        if error.http_status_code == _NOT_FOUND and not self._register:
            return (
                f"subject {subject} lacks the table's schema, and schemas.register_schemas is false: register it, or "
                "set schemas.register_schemas = true"
            )
        if error.http_status_code == _UNPROCESSABLE:
            return f"the schema registry refuses the table's schema for subject {subject}: {said}"
        return f"the schema registry at {self._url} refuses subject {subject}: {said}; see [schemas.registry]"

    def _rule(self, subject: str) -> str:
        """The subject's compatibility rule, else the registry's. Apicurio says NONE of a subject without its own."""
        for scope in (subject, None):
            try:
                rule = self._client.get_compatibility(scope)
            except Exception:  # noqa: S112 - a word in a message; the refusal itself is reported whatever happens here
                continue
            if str(rule) != "NONE":
                return str(rule)
        return "not shown"
