"""Kafka topics: names, settings and partition counts as values, and the partition that a host's records have."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final
from uuid import UUID

from tailrace_schemas.errors import SettingsError
from tailrace_schemas.table import Table
from tailrace_schemas.tokens import partition, token

MAX_NAME: Final = 249
KafkaPartition = tuple[str, int]
"""A topic and one of its partitions; confluent_kafka.TopicPartition has an offset and more too."""

PREFIX: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
PREFIX_RULE: Final = "may have letters, digits, '.', '_' and '-', not '.' first, at most 100 of them"
"""What topics.prefix may be, so that Kafka can have topics that begin with it."""

_PLAIN: Final = re.compile(r"[^A-Za-z0-9_]")
_ESCAPED: Final = re.compile(r"-([0-9a-f]+)-")
_COMPONENT: Final = re.compile(r"(?:[A-Za-z0-9_]|-[0-9a-f]+-)+")
_SUFFIX: Final = re.compile(r"\.-[0-9a-f]{6}$")


class Internal(StrEnum):
    """The topics beside those of tables; the value is what follows `<prefix>.`."""

    OFFSETS = "offsets"
    SCHEMAS = "schemas"
    SCHEMA_HISTORY = "schema-history"
    SCHEMA_CHANGES = "schema-changes"
    PROGRESS = "progress"
    GENERATIONS = "generations"
    DEAD_LETTER = "dead-letter"
    SNAPSHOTS = "snapshots"
    SINK_LETTERS = "sink-letters"


def check_prefix(prefix: str) -> str:
    """The prefix itself; SettingsError when Kafka could not have topics that begin with it."""
    if not PREFIX.fullmatch(prefix):
        raise SettingsError(f"topics.prefix {prefix!r} {PREFIX_RULE}")
    return prefix


def internal_topic(prefix: str, internal: Internal) -> str:
    """`<prefix>.offsets` and its like."""
    return f"{check_prefix(prefix)}.{internal}"


def chosen_topic(prefix: str, table: Table, announced: Mapping[str, str]) -> str:
    """The topic that `.schemas` has for the table's name, else one that collides with none (contracts.md 4).

    `announced` are topics by "keyspace.table". By name and not by id: a table that is dropped and made again keeps its
    topic.
    """
    topic = announced.get(str(table))
    return topic or table_topic(prefix, table.keyspace, table.name, table.id, announced.values())


def table_topic(prefix: str, keyspace: str, table: str, table_id: UUID, used: Iterable[str] = ()) -> str:
    """The topic of a table: `<prefix>.<keyspace>.<table>`, kept apart from the topics already `used`.

    Kafka allows letters, digits, '.', '_' and '-'. In keyspace and table every other character, and '.' and '-'
    themselves, becomes `-<lower-case hex of the code point>-`, so that `table_of_topic` finds the names again. Kafka
    holds names for equal that differ in '.' and '_' only, as their metrics would be one. When such a name is taken, or
    the name is too long, `.-<6 hex>` of the SHA-256 of the table id follows (contracts.md 4).
    """
    name = f"{check_prefix(prefix)}.{topic_component(keyspace)}.{topic_component(table)}"
    collisions = {_as_metric(topic) for topic in used}
    if len(name) <= MAX_NAME and _as_metric(name) not in collisions:
        return name
    suffix = f".-{hashlib.sha256(table_id.bytes).hexdigest()[:6]}"
    return name[: MAX_NAME - len(suffix)] + suffix


def table_of_topic(prefix: str, topic: str) -> tuple[str, str] | None:
    """Keyspace and table of a topic of this prefix; None for internal and foreign ones, and for shortened names.

    `<prefix>.schemas` is what tells for certain; this is for people and tools that have a name only.
    """
    parts = _parts(prefix, topic)
    if len(parts) != 2 or (_SUFFIX.search(topic) and len(topic) == MAX_NAME):
        return None
    if not all(_COMPONENT.fullmatch(component) for component in parts):
        return None
    keyspace, table = map(_name, parts)
    return keyspace, table


def _parts(prefix: str, topic: str) -> list[str]:
    """What stands between the dots behind the prefix, without a suffix; nothing for a topic of another prefix."""
    if not topic.startswith(f"{prefix}."):
        return []
    return _SUFFIX.sub("", topic[len(prefix) + 1 :]).split(".")


def _name(component: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), component)


def retention_of(settings: Mapping[str, str]) -> int | None:
    """How long a topic with these settings keeps a record, in milliseconds; None where age alone removes none.

    That is so of unlimited retention, and of topics that are only compacted.
    """
    milliseconds = int(settings["retention.ms"])
    return milliseconds if milliseconds >= 0 and "delete" in settings["cleanup.policy"].split(",") else None


def host_partition(host: UUID | str, n: int) -> int:
    """The partition of a host's records in `.offsets`, `.progress` and `.schema-history` (contracts.md 1).

    The murmur3 token of the UTF-8 host id, through the formula that places changes.
    """
    return partition(token(str(host).encode()), n)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """A topic as it has to be: settings by Kafka's own names, values as Kafka prints them.

    Where `replication_factor` or `min_insync_replicas` is None, the number of brokers decides (contracts.md 4).
    """

    name: str
    partitions: int
    config: Mapping[str, str] = field(hash=False)
    replication_factor: int | None = None
    min_insync_replicas: int | None = None

    def replication(self, brokers: int) -> int:
        """The replication factor on a cluster of so many brokers: three, or as many as there are."""
        return self.replication_factor or min(3, max(1, brokers))

    def settings(self, brokers: int) -> dict[str, str]:
        """Every setting to create the topic with on a cluster of so many brokers."""
        in_sync = self.min_insync_replicas or max(1, self.replication(brokers) - 1)
        return {**self.config, "min.insync.replicas": str(in_sync)}

    def problems(self, partitions: int, actual: Mapping[str, str]) -> tuple[str, ...]:
        """What forbids using a topic that exists with these partitions and settings; empty when it will do.

        More partitions are the owner's choice where there may be several. Of the settings only those count that
        promises rest on: the clean-up policy, unlimited retention, append time, and room for the largest record.
        """
        problems = []
        if self.partitions == 1 != partitions:
            problems.append(f"topic {self.name} has {partitions} partitions; it must have 1, since its order counts")
        for setting, needed in self.config.items():
            if setting in actual and not _serves(setting, needed, actual[setting]):
                problems.append(f"topic {self.name} has {setting}={actual[setting]}; it needs {needed}")
        return tuple(problems)


_FOREVER: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
# The active segment is never compacted: small ones, closed often, leave a starting agent little to read.
_COMPACT_OFTEN: Final = {
    "cleanup.policy": "compact",
    "segment.ms": "600000",
    "segment.bytes": str(16 << 20),
    "max.compaction.lag.ms": "600000",
}
_DEAD_LETTERS: Final = {"cleanup.policy": "delete", "retention.ms": str(90 * 86_400_000), "retention.bytes": "-1"}
INTERNAL_TOPICS: Final[Mapping[Internal, tuple[int, Mapping[str, str]]]] = MappingProxyType(
    {
        Internal.OFFSETS: (16, _COMPACT_OFTEN),
        Internal.SCHEMAS: (1, {"cleanup.policy": "compact"}),
        Internal.SCHEMA_HISTORY: (16, {"cleanup.policy": "compact"}),
        Internal.SCHEMA_CHANGES: (1, _FOREVER),
        Internal.PROGRESS: (16, _COMPACT_OFTEN),
        Internal.GENERATIONS: (1, _FOREVER | {"message.timestamp.type": "LogAppendTime"}),
        Internal.DEAD_LETTER: (3, _DEAD_LETTERS),
        Internal.SNAPSHOTS: (1, _COMPACT_OFTEN),
        Internal.SINK_LETTERS: (1, _COMPACT_OFTEN),
    }
)
"""Partitions and settings (the table of contracts.md 4), without max.message.bytes."""


def _serves(setting: str, required: str, actual: str) -> bool:
    match setting:
        case "cleanup.policy" | "message.timestamp.type":
            return actual == required
        case "retention.ms" | "retention.bytes" if required == "-1":
            return actual == required
        case "max.message.bytes":
            return int(actual) >= int(required)
        case _:
            return True


def topic_component(name: str) -> str:
    """A name of CQL's as a part of a topic's name: every character but A-Z, a-z, 0-9 and _ as `-<code point, hex>-`."""
    return _PLAIN.sub(lambda match: f"-{ord(match[0]):x}-", name)


def _as_metric(topic: str) -> str:
    return topic.replace(".", "_")
