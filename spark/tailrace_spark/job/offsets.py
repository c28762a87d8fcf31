"""The offsets of a micro-batch as Spark plans it, and the records that it can no longer read, by them."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from tailrace_common.kafka import TopicState
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import NO_BATCH, offsets_from_json, offsets_to_json
from tailrace_spark.job.checkpoint_files import Folder, files_in

Offsets = Mapping[KafkaPartition, int]

UNKNOWN_FORM: Final = "Spark's checkpoint has a form that this version does not know"

_VERSION: Final = "v1"
# Before the text of the first offsets Spark writes a zero byte, and reads one, for readers of Spark 2.1.0.
_FIRST_BYTE: Final = "\0"
DELETED: Final = "was deleted"
RECREATED: Final = "was deleted and created again"
SHORTER: Final = "has fewer records than were read, as where Kafka was restored, or lost its last ones"
TRIMMED: Final = "lost records that were not read yet, to its retention or by hand"


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A micro-batch: the offset at which each partition begins, and the one after its last.

    A partition that is new in the batch has no start: it is read from its beginning.
    """

    start: Offsets
    end: Offsets

    @property
    def size(self) -> int:
        """So many records at most; the marks of transactions have offsets too."""
        return sum(max(0, end - self.start.get(partition, 0)) for partition, end in self.end.items())

    @property
    def topics(self) -> set[str]:
        """The topics that it may have records of."""
        return {partition[0] for partition, end in self.end.items() if self.start.get(partition, 0) != end}


class PlannedOffsets:
    """Spark's files `offsets/<batch>` and `sources/0/0` of a checkpoint with one source, of Kafka's."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        folder = checkpoint.rstrip("/")
        self._planned: Folder = files_in(spark, f"{folder}/offsets")
        self._done: Folder = files_in(spark, f"{folder}/commits")
        self._first: Folder = files_in(spark, f"{folder}/sources/0")

    def pending(self) -> tuple[int, PlannedBatch] | None:
        """The last batch that was planned; where it is done already, its plan ends where it begins: at its end.

        None where no batch was planned. Raises ValueError for files that this code does not know.
        """
        batch = _last(self._planned)
        if batch == NO_BATCH:
            return None
        if self._done.read(str(batch)) is None:
            return batch, self.plan(batch)
        end = _planned(self._planned.read(str(batch)), batch)
        return batch, PlannedBatch(end, end)

    def begun(self) -> bool:
        """Whether Spark has noted the offsets at which the stream begins."""
        return begun_in(self._first)

    def committed(self) -> tuple[int, Offsets]:
        """The last batch that Spark counts as done, -1 before the first one, and the offsets at which the next begins.

        None of these from files that this code does not know.
        """
        batch = _last(self._done)
        text = self._planned.read(str(batch))
        try:
            return batch, {} if text is None else batch_offsets(text)
        except ValueError:
            return batch, {}

    def replace(self, batch: int, plan: PlannedBatch) -> None:
        """Write another plan for the last batch, while no query runs: Spark has no call that moves a stream's offsets.

        At a restart Spark looks at the last batch from its beginning, also where it is done, so both ends are written:
        the beginning first. A crash between the two leaves what the next look at the offsets mends.
        """
        if batch:
            _rewrite(self._planned, str(batch - 1), plan.start)
        else:
            self._first.write("0", f"{_FIRST_BYTE}{_VERSION}\n{offsets_to_json(plan.start)}")
        _rewrite(self._planned, str(batch), plan.end)

    def plan(self, batch: int) -> PlannedBatch:
        """A batch that is planned. Raises ValueError for files that this code does not know."""
        end = _planned(self._planned.read(str(batch)), batch)
        if batch:
            return PlannedBatch(_planned(self._planned.read(str(batch - 1)), batch - 1), end)
        return PlannedBatch(first_offsets(self._first.read("0") or ""), end)


def starting_at(offsets: Offsets) -> dict[str, str]:
    """The options of Spark's Kafka source that begin there. Topics that appear later are read from their beginning."""
    return {"startingOffsets": offsets_to_json(offsets) if offsets else "earliest"}


def begun_in(first: Folder) -> bool:
    """Whether Spark has noted the offsets at which a stream begins: `first` are the files of `sources/0`."""
    return first.read("0") is not None


def _last(files: Folder) -> int:
    """The last batch that has a file of its number."""
    return max((int(name) for name in files.names() if name.isdigit()), default=NO_BATCH)


def _planned(text: str | None, batch: int) -> dict[KafkaPartition, int]:
    if text is None:
        raise ValueError(f"Spark's checkpoint has no offsets of batch {batch}")
    return batch_offsets(text)


def batch_offsets(text: str) -> dict[KafkaPartition, int]:
    """The offsets in the text of `offsets/<batch>`: a version, a line about the batch, a line for each source."""
    lines = text.splitlines()
    if len(lines) != 3 or lines[0] != _VERSION:
        raise ValueError(f"offsets of an unknown form: {lines[:1]} and {len(lines)} lines")
    return offsets_from_json(lines[2])


def first_offsets(text: str) -> dict[KafkaPartition, int]:
    """The offsets in the text of `sources/0/0`, at which the first batch begins."""
    version, _, offsets = text.removeprefix(_FIRST_BYTE).partition("\n")
    if version != _VERSION:
        raise ValueError(f"first offsets of an unknown form: version {version}")
    return offsets_from_json(offsets)


def _rewrite(files: Folder, name: str, offsets: Offsets) -> None:
    lines = (files.read(name) or "").splitlines()
    files.write(name, "\n".join([*lines[:2], offsets_to_json(offsets)]))


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets of a partition that were not read: from the first up to before `end`; None: nobody knows the end."""

    partition: int
    first: int
    end: int | None

    def __str__(self) -> str:
        if self.end is None:
            return f"partition {self.partition} from offset {self.first} on"
        return f"partition {self.partition} offsets {self.first} to {self.end - 1}"


@dataclass(frozen=True, slots=True)
class Loss:
    """One topic's loss: why, and which offsets were not read, by partition."""

    topic: str
    why: str
    spans: tuple[Span, ...]

    @property
    def offsets(self) -> int:
        """So many are known to be lost; marks of transactions are among them."""
        return sum(span.end - span.first for span in self.spans if span.end is not None)

    def __str__(self) -> str:
        return f"topic {self.topic} {self.why}; not read: {', '.join(map(str, self.spans)) or 'no partition'}"


def topics_of(plan: PlannedBatch) -> Set[str]:
    """The topics that a plan has offsets of."""
    return {topic for topic, _ in (*plan.start, *plan.end)}


def find_losses(plan: PlannedBatch, ids: Mapping[str, str], states: Mapping[str, TopicState]) -> list[Loss]:
    """The losses by topic: records of a batch, or of the next one, that Kafka no longer has.

    `ids` are those that topics had when they were read first; `states` has the topics that are there.
    """
    losses = []
    for topic in sorted(topics_of(plan)):
        state = states.get(topic)
        partitions = sorted({partition for name, partition in (*plan.start, *plan.end) if name == topic})
        if state is None:
            losses.append(Loss(topic, DELETED, tuple(_unread(plan, topic, partition) for partition in partitions)))
        elif (why := _why_another(plan, topic, ids, state)) is not None:
            losses.append(Loss(topic, why, tuple(_unread(plan, topic, partition) for partition in partitions)))
        elif spans := _trimmed(plan, topic, partitions, state):
            losses.append(Loss(topic, TRIMMED, spans))
    return losses


def without(plan: PlannedBatch, topics: Set[str]) -> PlannedBatch:
    """The plan less some topics, as if they had never been read."""
    start, end = (
        {partition: offset for partition, offset in side.items() if partition[0] not in topics}
        for side in (plan.start, plan.end)
    )
    return PlannedBatch(start, end)


def moved(plan: PlannedBatch, offsets: Mapping[KafkaPartition, int]) -> PlannedBatch:
    """The plan with partitions that begin at these offsets, and end no earlier."""
    start = {**plan.start, **offsets}
    ends = {partition: max(offset, plan.end.get(partition, 0)) for partition, offset in offsets.items()}
    end = {**plan.end, **ends}
    return PlannedBatch(start, end)


def left_of(loss: Loss, state: TopicState) -> dict[KafkaPartition, int]:
    """The offsets at which a topic that lost records is read on."""
    return {(loss.topic, span.partition): state.starts[span.partition] for span in loss.spans}


def _why_another(plan: PlannedBatch, topic: str, ids: Mapping[str, str], state: TopicState) -> str | None:
    """Why a topic's offsets are of other records than the plan's, by its id or its ends; None where they are not."""
    if topic in ids and ids[topic] != state.id:
        return RECREATED
    offsets = [*plan.start.items(), *plan.end.items()]
    if all(offset <= state.ends.get(partition, 0) for (name, partition), offset in offsets if name == topic):
        return None
    return SHORTER if topic in ids else RECREATED


def _unread(plan: PlannedBatch, topic: str, partition: int) -> Span:
    first = plan.start.get((topic, partition), 0)
    end = plan.end.get((topic, partition), 0)
    return Span(partition, first, end if end > first else None)


def _trimmed(plan: PlannedBatch, topic: str, partitions: list[int], state: TopicState) -> tuple[Span, ...]:
    spans = []
    for partition in partitions:
        first, start = plan.start.get((topic, partition), 0), state.starts.get(partition, 0)
        if start > first:
            spans.append(Span(partition, first, start))
    return tuple(spans)
