"""Spark's checkpoint, read beside the stream: up to which offsets its sink has everything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tailrace_schemas.topics import KafkaPartition

_NOTHING: Final[Mapping[KafkaPartition, int]] = {}


class Checkpoint:
    """A structured-streaming checkpoint directory; Spark writes `commits/N` once the sink has taken batch N in."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._batch = -1
        self._ends = _NOTHING

    @property
    def started(self) -> bool:
        """Whether the query has begun: Spark makes this directory then."""
        return (self._directory / "commits").is_dir()

    def ends(self) -> Mapping[KafkaPartition, int]:
        """Per partition the offset after the last one that the sink has."""
        batch = max((int(path.name) for path in self._directory.glob("commits/*") if path.name.isdecimal()), default=-1)
        if batch != self._batch:
            # A version line, then the batch's own metadata, then one line for each source.
            source = (self._directory / "offsets" / str(batch)).read_text().splitlines()[2]
            self._ends = {
                (topic, int(partition)): end
                for topic, ends in json.loads(source).items()
                for partition, end in ends.items()
            }
            self._batch = batch
        return self._ends
