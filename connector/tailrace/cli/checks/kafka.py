"""`tailrace check` of Kafka and the schema registry: brokers, the topics that exist, their copies."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing

from tailrace.assembly.services import registry_store
from tailrace.cli.checks.framing import check_framing
from tailrace.cli.checks.records import check_records
from tailrace.publish.kafka import KafkaTopics
from tailrace_common.cli.checks import Check, judge
from tailrace_common.settings import Settings
from tailrace_schemas.errors import ServiceError, TailraceError


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
