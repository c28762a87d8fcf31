"""A micro-batch: pieces with each change's place in Kafka, what sinks are told, what writing came to, how far they
are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, Self

from tailrace_schemas.formats import require_format
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivered import Delivered, RecordId, RecordKey

__all__ = [
    "LETTER_FORMAT",
    "DeadLetter",
    "Delivered",
    "Piece",
    "RecordId",
    "RecordKey",
    "Summary",
    "Transaction",
    "first_of",
]

LETTER_FORMAT: Final = 1
"""Of dead letters."""
WHOLE: Final[KafkaPartition] = ("", -1)
"""The share with the records of all Kafka partitions."""
NO_BATCH: Final = -1
"""The batch of a stream that has written none."""

FORMAT: Final = 1
_SPANS_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Transaction:
    """Where a change stands among those of one mutation's update of its table.

    `id` has 16 bytes, the mutation digest (docs/contracts.md 3): equal in the copies of all replicas. `index` counts
    from 0. `count` is None where changes of the update are missing, since nobody could decode them. `begins` is the
    offset of the first one's record; `ends` is true of the last one that is there.
    """

    id: bytes
    index: int
    count: int | None
    begins: int
    ends: bool

    def to_json(self) -> dict[str, object]:
        """`id` as hexadecimal digits, `index` and `count`."""
        return {"id": self.id.hex(), "index": self.index, "count": self.count}


def first_of(record_id: RecordId, transaction: Transaction | None) -> RecordId:
    """The record that decides whether all of a change's transaction is written: its first, else its own."""
    return record_id if transaction is None else replace(record_id, offset=transaction.begins)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One record that cannot be merged: where it is, why, and its bytes, where whoever sets it aside has them.

    `transaction` is the change's, where it has one.
    """

    record_id: RecordId
    reason: str
    message: bytes = field(default=b"", repr=False)
    transaction: Transaction | None = field(default=None, repr=False, compare=False)

    @property
    def first_id(self) -> RecordId:
        """As `first_of`."""
        return first_of(self.record_id, self.transaction)

    @classmethod
    def from_json(cls, value: Mapping[str, Any], store: str = "") -> Self:
        """That of a JSON object with the members of `to_json`, whatever else it has.

        `store` names the place that has it, for people. Raises SettingsError for one of another format.
        """
        require_format(f"a dead letter in {store}", value.get("format"), LETTER_FORMAT)
        return cls(RecordId.from_json(value), value["reason"], bytes.fromhex(value.get("message") or ""))

    def to_json(self) -> dict[str, object]:
        """The record's place, `reason`, `message` as hexadecimal digits or null, and `format`."""
        message = self.message.hex() or None
        return {**self.record_id.to_json(), "reason": self.reason, "message": message, "format": LETTER_FORMAT}


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a micro-batch that fits into memory: changes in any order, and records that were no changes."""

    changes: tuple[Delivered, ...]
    dead_letters: tuple[DeadLetter, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """What became of a micro-batch: changes merged, rows whose state changed, records set aside.

    `deferred` changes are kept until the store takes those of their table again. `refused` says by "keyspace.table" why
    changes of a table were set aside or kept; of several reasons the last.
    """

    changes: int = 0
    rows: int = 0
    dead_letters: int = 0
    deferred: int = 0
    refused: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __add__(self, other: Summary) -> Summary:
        return Summary(
            self.changes + other.changes,
            self.rows + other.rows,
            self.dead_letters + other.dead_letters,
            self.deferred + other.deferred,
            {**self.refused, **other.refused},
        )


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch to be written, in a share for each Kafka partition; `ends` are the offsets behind it.

    `stream` is the id that its checkpoint has. `here`: it is one share, WHOLE, which this process
    writes; it alone has truncations, and a writer may alter tables. `fences`: shares of earlier batches may
    still be written, here or by executors, and none of them counts from now on. `again`: it has dead letters' changes,
    beside a stream that may write. They have their own places and write times, and no images: the rows before and
    after are those of another time.
    """

    stream: str
    number: int
    ends: Mapping[KafkaPartition, int] = field(default_factory=dict)
    here: bool = False
    fences: bool = True
    again: bool = False


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """What became of a share; Spark brings it to the driver.

    `detail` is what the sink's `commit` needs of its writer, such as files that count from then on. It can be pickled.
    """

    share: KafkaPartition
    summary: Summary
    detail: object = field(default=None, repr=False)


def partition_counts(ends: Mapping[KafkaPartition, int]) -> dict[str, int]:
    """The number of each topic's partitions: Spark plans offsets for all of them."""
    counts: dict[str, int] = {}
    for topic, partition in ends:
        counts[topic] = max(counts.get(topic, 0), partition + 1)
    return counts


@dataclass(frozen=True, slots=True)
class SinkProgress:
    """The last micro-batch of a stream that is in its sink: everything below `offsets`, by topic and partition.

    `stream` is the checkpoint's own id: batches of another checkpoint have other numbers.
    """

    stream: str
    batch: int = NO_BATCH
    offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)


def by_topic(offsets: Mapping[tuple[str, int], int]) -> dict[str, dict[str, int]]:
    """The form of JSON that Spark writes: {topic: {partition: offset}}."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics


def by_partition(topics: Any) -> dict[tuple[str, int], int]:
    """The inverse of `by_topic`. Raises ValueError for anything else."""
    try:
        return {
            (str(topic), int(partition)): int(offset)
            for topic, partitions in topics.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError) as error:
        raise ValueError(f"no offsets: {error}") from None


def offsets_to_json(offsets: Mapping[tuple[str, int], int]) -> str:
    """As Spark writes them."""
    return json.dumps(by_topic(offsets), separators=(",", ":"))


def offsets_from_json(text: str) -> dict[tuple[str, int], int]:
    """The inverse of `offsets_to_json`. Raises ValueError for anything else."""
    return by_partition(json.loads(text))


def progress_to_json(progress: SinkProgress) -> str:
    """For sinks that keep it as one text."""
    value = {
        "stream": progress.stream, "batch": progress.batch, "offsets": by_topic(progress.offsets), "format": FORMAT,
    }  # fmt: skip
    return json.dumps(value, sort_keys=True)


def progress_from_json(text: str) -> SinkProgress:
    """The inverse of `progress_to_json`. Raises ValueError for anything else, and SettingsError for another format."""
    value = json.loads(text)
    if not isinstance(value, dict) or not {"stream", "batch", "offsets"} <= value.keys():
        raise ValueError(f"no progress of a stream: {text[:100]}")
    require_format(f"the sink's progress of stream {value['stream']}", value.get("format"), FORMAT)
    return SinkProgress(str(value["stream"]), int(value["batch"]), by_partition(value["offsets"]))


def missing_from_sink(committed: SinkProgress, stored: SinkProgress | None) -> str | None:
    """What the sink lacks of what its checkpoint counts as written, in words; None: nothing.

    The sink keeps a batch before the checkpoint counts it, so a sink that is ahead lacks nothing. Batches are compared,
    and not offsets: those of a checkpoint are moved past what Kafka has lost.
    """
    if committed.batch == NO_BATCH:
        return None
    if stored is None:
        spans = [
            f"{topic} partition {partition} up to {end - 1}" for (topic, partition), end in _sorted(committed) if end
        ]
        return f"the sink has nothing of this stream; missing: {_shown(spans)}"
    if stored.batch >= committed.batch:
        return None
    spans = [
        f"{topic} partition {partition} offsets {stored.offsets.get((topic, partition), 0)} to {end - 1}"
        for (topic, partition), end in _sorted(committed)
        if end > stored.offsets.get((topic, partition), 0)
    ]
    return f"the sink has this stream up to batch {stored.batch} only; missing: {_shown(spans)}"


def _sorted(progress: SinkProgress) -> list[tuple[tuple[str, int], int]]:
    return sorted(progress.offsets.items())


def _shown(spans: list[str]) -> str:
    rest = f" and {len(spans) - _SPANS_SHOWN} more partitions" if len(spans) > _SPANS_SHOWN else ""
    return (", ".join(islice(spans, _SPANS_SHOWN)) or "no offsets") + rest
