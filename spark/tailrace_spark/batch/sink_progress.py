"""How far a stream is in a sink, and what a sink lacks that the stream's checkpoint counts as written. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from tailrace_schemas.formats import require_format

NO_BATCH: Final = -1
"""The batch of a stream that has written none."""

FORMAT: Final = 1
_SPANS_SHOWN: Final = 5


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
