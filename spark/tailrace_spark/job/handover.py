"""What a stream hands to the one that goes on from where it ended, with another checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tailrace_spark.batch.sink_progress import SinkProgress
from tailrace_spark.source.readings import Readings


@dataclass(frozen=True, slots=True)
class Handover:
    """The ids of the topics that were read, what the sink kept last of the stream's progress, and its readings.

    By them it finds that a topic was made again, and that the sink was emptied, as if it were the same stream.
    """

    topic_ids: Mapping[str, str] = field(default_factory=dict)
    kept: SinkProgress | None = None
    readings: Readings = field(default_factory=dict)
