"""`tailrace check` of how messages name their schemas: by our own ids, by a registry's, or by both in one prefix.

The forms of values are judged beside it, since the topic of schemas is read for both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tailrace.cli.checks.forms import judge_forms
from tailrace.publish.selection import listed
from tailrace_common.cli.checks import Check
from tailrace_common.settings import Settings
from tailrace_common.topics.schemas import SchemaReader
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.topics import Internal, internal_topic

_REGISTRY_BYTES: Final = 4
_OWN: Final = "C3 01 and 8 bytes (Avro single-object encoding)"
_REGISTRY: Final = "00 and 4 bytes of the registry's (Confluent's wire format)"


def check_framing(settings: Settings, topics: Iterable[str]) -> Iterator[Check]:
    """What the prefix's schemas say of its messages: their framings, and the forms of their values where there are any
    yet. `topics` are those in Kafka."""
    if internal_topic(settings.topics.prefix, Internal.SCHEMAS) not in topics:
        yield judge_framing((), settings.schemas.store)
        return
    try:
        with SchemaReader(settings.kafka.reveal(), settings.topics.prefix) as reader:
            reader.refresh()
            yield judge_framing(reader.values(), settings.schemas.store)
            yield judge_forms(reader.values(), settings.topics.prefix, settings.avro.forms())
    except ServiceError as error:
        yield Check("framing", False, str(error), "the agent's user needs to read the topic of schemas")


def judge_framing(entries: Iterable[SchemaEntry], store: str) -> Check:
    """Which framings the published schemas have, and which one new messages get."""
    topic_framed, registry = set[str](), set[str]()
    for entry in entries:
        (registry if len(entry.schema_id) == _REGISTRY_BYTES else topic_framed).add(entry.topic)
    (topic_framed if store == "topic" else registry).add("")  # what comes next
    if topic_framed and registry:
        named = listed(sorted((registry if store == "topic" else topic_framed) - {""}))
        former, now = (_REGISTRY, _OWN) if store == "topic" else (_OWN, _REGISTRY)
        detail = f"both: messages of {named} begin with {former}; new ones begin with {now}, as schemas.store says"
        advice = (
            "stock deserializers of Confluent's fail at the messages of our own framing: start such readers behind "
            "these, or publish under another topics.prefix"
        )
        return Check("framing", True, detail, advice)
    if store == "topic":
        detail = f"messages begin with {_OWN}: our readers take it, stock deserializers of Confluent's do not"
        return Check("framing", True, f"{detail} (schemas.store)")
    return Check("framing", True, f"messages begin with {_REGISTRY}")
