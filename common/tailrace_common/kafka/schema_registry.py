"""A registry of Confluent's API: it gives schemas their ids, or says in our words why it does not.

Needs what the extra `registry` brings, so that nobody imports it who names no registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from tailrace_common.properties.passthrough import Scalar
from tailrace_common.secrets import redact
from tailrace_common.unreachable import unreachable
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.errors import SchemaRefusedError, ServiceError, SettingsError

# Who asks retries by itself, and while the client waits, a transaction may be open: less than its time-out.
_DEFAULTS: Final[Mapping[str, Scalar]] = {"timeout": 5, "max.retries": 0}
_CONFLICT: Final = 409
_NOT_FOUND: Final = 404
_UNPROCESSABLE: Final = 422


class RegistryRefusedError(ServiceError):
    """The registry answers, and refuses us whatever the schema."""


class SchemaRegistry:
    """One registry, by the names of Confluent's client; nothing connects before the first question.

    `section` is that of its settings, and `setting` the one that is `register`: with false, schemas are looked up only,
    and somebody else registers them. One thread at a time. Raises SettingsError for settings that the client refuses.
    """

    def __init__(self, config: Mapping[str, Scalar], *, register: bool, section: str, setting: str) -> None:
        self.url = str(config["url"])
        self._register = register
        self._section = section
        self._setting = setting
        try:
            self._client = SchemaRegistryClient({**_DEFAULTS, **config})
        except (ValueError, TypeError, OSError) as error:
            raise SettingsError(f"[{section}]: {redact(str(error))}") from None

    def id_of(self, subject: str, text: str) -> int:
        """The id of an Avro schema (JSON) under a subject.

        Raises SchemaRefusedError where this schema is refused, RegistryRefusedError where we are, and ServiceError
        where nobody answers.
        """
        schema = Schema(text, "AVRO")
        try:
            if self._register:
                return int(self._client.register_schema(subject, schema))
            registered: Any = self._client.lookup_schema(subject, schema)
            return int(registered.schema_id)
        except SchemaRegistryError as error:
            raise self._refusal(subject, error) from error
        except Exception as error:
            reason = redact(str(error) or type(error).__name__)
            raise self._failed(f"does not answer: {reason}; see [{self._section}]") from error

    def own_id(self, subject: str, text: str, announced: Mapping[bytes, SchemaEntry]) -> bytes:
        """The id of a schema of ours, as messages have it. Raises as `id_of`.

        Raises RegistryRefusedError too where our topic of schemas has `announced` the id for another schema. Ids are
        the registry's own counter: another registry gives the same to others.
        """
        schema_id = self.id_of(subject, text).to_bytes(4, "big")
        entry = announced.get(schema_id)
        if entry is not None and entry.avro != text:
            raise RegistryRefusedError(
                f"the schema registry at {self.url} gives subject {subject} the id "
                f"{int.from_bytes(schema_id, 'big')}, which is another schema's in our topic of schemas. Is it another "
                "registry than before? Then readers could not tell them apart: choose another topics.prefix for it"
            )
        return schema_id

    def reach(self) -> str:
        """The registry's own compatibility rule, to see whether it answers us. Raises ServiceError."""
        try:
            return str(self._client.get_compatibility())
        except Exception as error:
            reason = redact(str(error) or type(error).__name__)
            raise self._failed(reason) from error

    def _failed(self, words: str) -> ServiceError:
        registry = f"the schema registry at {self.url}"
        return unreachable(registry, words, "it", f"[{self._section}]") or ServiceError(f"{registry}: {words}")

    def close(self) -> None:
        """End its connections."""
        self._client.close()

    def _refusal(self, subject: str, error: SchemaRegistryError) -> ServiceError:
        answer = f"{redact(str(error.error_message))} (HTTP {error.http_status_code})"
        if error.http_status_code == _CONFLICT:
            return SchemaRefusedError(
                f"the table's new schema breaks the rule of subject {subject}, which is {self._rule(subject)}: "
                f"{answer}. Relax the rule of {subject} (NONE takes everything), or register the schema by hand; "
                "then they go on by themselves"
            )
        if error.http_status_code == _NOT_FOUND and not self._register:
            return SchemaRefusedError(
                f"subject {subject} lacks the table's schema, and {self._setting} is false: register it, or "
                f"set {self._setting} = true"
            )
        if error.http_status_code == _UNPROCESSABLE:
            return SchemaRefusedError(f"the schema registry refuses the table's schema for subject {subject}: {answer}")
        return RegistryRefusedError(
            f"the schema registry at {self.url} refuses subject {subject}: {answer}; see [{self._section}]"
        )

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
