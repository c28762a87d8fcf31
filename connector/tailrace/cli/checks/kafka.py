"""`tailrace check` of Kafka and the registry: brokers, topics, the framing and forms of messages, agents' records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import product
from typing import Final, get_args, get_type_hints

from tailrace.assembly.services import registry_store
from tailrace.cli.support.records import chosen_losses, lost_records, lost_words, stored_losses
from tailrace.publish.kafka import KafkaTopics
from tailrace_common.cli.checks import Check, judge
from tailrace_common.selection import listed
from tailrace_common.settings import Settings
from tailrace_common.topics import SchemaReader
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.avro.schema import canonical_text, value_schema
from tailrace_schemas.errors import ServiceError, TailraceError
from tailrace_schemas.forms import ValueForms
from tailrace_schemas.topics import Internal, internal_topic

_MOST_LOSSES: Final = 3
_HINTS: Final = get_type_hints(ValueForms)
_ALL_FORMS: Final = tuple(ValueForms(*chosen) for chosen in product(*(get_args(hint) for hint in _HINTS.values())))
_REGISTRY_BYTES: Final = 4
_OWN_FRAMING: Final = "C3 01 and 8 bytes (Avro single-object encoding)"
_REGISTRY_FRAMING: Final = "00 and 4 bytes of the registry's (Confluent's wire format)"


def check_kafka(settings: Settings, timeout: int = 10) -> Iterator[Check]:
    """The brokers answer within `timeout` seconds; the topics that exist will do."""
    try:
        topics = KafkaTopics(settings.kafka.reveal(), settings.topics, create=False, timeout=timeout)
        counts, brokers = topics.survey()
    except TailraceError as error:
        yield Check("kafka", False, str(error), "see [kafka]: addresses, security.protocol, credentials")
        return
    advice = "" if brokers >= 3 else "three brokers or more keep the changes when one is lost"
    yield Check("kafka", True, f"{settings.kafka.bootstrap_servers}, brokers: {brokers}", advice)
    own_topics = {name: count for name, count in counts.items() if name.startswith(f"{settings.topics.prefix}.")}
    try:
        problems = topics.problems(own_topics)
    except ServiceError as error:
        problems = [str(error)]
    detail = "; ".join(problems) or f"{len(own_topics)} under {settings.topics.prefix}"
    yield judge("topics", not problems, detail, "change the topic's settings, or choose another topics.prefix")
    yield from check_framing(settings, own_topics)
    yield from check_records(settings, own_topics)
    if own_topics:
        try:
            yield judge_copies({name: topics.copies().get(name, 0) for name in own_topics}, topics.in_sync(own_topics))
        except ServiceError as error:
            yield Check("copies", False, str(error), "the agent's user needs DescribeConfigs on its topics for this")


def judge_copies(copies: Mapping[str, int], in_sync: Mapping[str, int]) -> Check:
    """What the loss of a broker means, by topics' copies and how many of them must have a record for it to count."""
    fewest, largest = min(copies.values()), max(copies.values())
    detail = f"{fewest} of each partition" if fewest == largest else f"{fewest} to {largest} of each partition"
    refused = sorted(name for name, count in copies.items() if in_sync[name] > count)
    if refused:
        words = f"{', '.join(refused)}: min.insync.replicas is more than there are copies, so nothing can be written"
        return Check("copies", False, words, "lower min.insync.replicas, or add copies")
    advice = []
    if few := sorted(name for name, count in copies.items() if count < 3):
        advice.append(f"with fewer than three copies, two lost brokers lose what {_some(few)} had")
    if stiff := sorted(name for name, count in copies.items() if count > 1 and in_sync[name] == count):
        advice.append(f"one broker that is down stops {_some(stiff)}: min.insync.replicas is the number of copies")
    if loose := sorted(name for name, count in copies.items() if count > 2 and in_sync[name] == 1):
        advice.append(f"a record of {_some(loose)} counts with one copy: raise min.insync.replicas to 2")
    return Check("copies", True, detail, "; ".join(advice))


def _some(names: Collection[str]) -> str:
    """The first of them, and how many more."""
    first, *rest = names
    return f"{first} and {len(rest)} more" if rest else first


def check_registry(settings: Settings) -> Iterator[Check]:
    """The schema registry, where there is to be one: it answers us."""
    if settings.schemas.store == "topic":
        return
    try:
        with closing(registry_store(settings.schemas, {})) as registry:
            rule = registry.reach()
    except TailraceError as error:
        yield Check("registry", False, str(error), "see [schemas.registry]: url, authority, user and password")
        return
    yield Check(
        "registry", True, f"{settings.schemas.registry.root['url']}, rule of subjects without their own: {rule}"
    )


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
        former, now = (_REGISTRY_FRAMING, _OWN_FRAMING) if store == "topic" else (_OWN_FRAMING, _REGISTRY_FRAMING)
        detail = f"both: messages of {named} begin with {former}; new ones begin with {now}, as schemas.store says"
        advice = (
            "stock deserializers of Confluent's fail at the messages of our own framing: start such readers behind "
            "these, or publish under another topics.prefix"
        )
        return Check("framing", True, detail, advice)
    if store == "topic":
        detail = f"messages begin with {_OWN_FRAMING}: our readers take it, stock deserializers of Confluent's do not"
        return Check("framing", True, f"{detail} (schemas.store)")
    return Check("framing", True, f"messages begin with {_REGISTRY_FRAMING}")


def judge_forms(entries: Iterable[SchemaEntry], prefix: str, forms: ValueForms) -> Check:
    """Which topics have messages in other forms than those of the settings, by the schemas that were announced."""
    differing: dict[str, set[str]] = {}
    for entry in entries:
        if entry.part == "value" and (entry_forms := _other(entry, prefix, forms)) is not None:
            for name in _HINTS:
                if getattr(entry_forms, name) != getattr(forms, name):
                    differing.setdefault(f'{name} = "{getattr(entry_forms, name)}"', set()).add(entry.topic)
    now = ", ".join(f'{name} = "{getattr(forms, name)}"' for name in _HINTS)
    if not differing:
        return Check("avro", True, now)
    named = "; ".join(f"{name} in {listed(sorted(topics))}" for name, topics in sorted(differing.items()))
    advice = (
        "our readers take both. Other readers must know both forms: give all agents the same [avro], and start such "
        "readers behind the messages from before"
    )
    return Check("avro", True, f"both: {named}, by other agents or earlier settings; new messages here: {now}", advice)


def _other(entry: SchemaEntry, prefix: str, forms: ValueForms) -> ValueForms | None:
    """The forms of a schema, as near to these as can be; None where they are these, or where another version of
    Tailrace made it."""

    def differing(other: ValueForms) -> int:
        return sum(getattr(other, name) != getattr(forms, name) for name in _HINTS)

    for each in sorted(_ALL_FORMS, key=differing):
        if canonical_text(value_schema(entry.table, prefix, each)) == entry.avro:
            return None if each == forms else each
    return None


def check_records(settings: Settings, topics: Collection[str]) -> Iterator[Check]:
    """The offsets records and losses of a prefix with these topics; nothing where no agent has published yet."""
    if internal_topic(settings.topics.prefix, Internal.PROGRESS) not in topics:
        return
    try:
        lost = [lost_words(settings, progress) for progress in lost_records(settings)]
        open_ = chosen_losses(stored_losses(settings), None)
    except ServiceError as error:
        yield Check("positions", False, str(error), "the agent's user needs the right to read its topics for this")
        return
    yield judge("positions", not lost, "; ".join(lost) or "none was deleted", "tailrace offsets restore")
    reasons = "; ".join(f"host {stored.loss.host}: {stored.loss.words}" for stored in open_[:_MOST_LOSSES])
    left_out = f"; and {len(open_) - _MOST_LOSSES} more" if len(open_) > _MOST_LOSSES else ""
    advice = "see `tailrace losses list`, and once they are dealt with, `tailrace losses acknowledge`"
    yield judge("losses", not open_, f"{reasons}{left_out}" or "none that nobody has acknowledged", advice)
