"""How far the files below a root may reach in each partition of Kafka, kept before the files are there.

What stands behind that is in no file, so a batch that begins there need not look for files of an earlier attempt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tailrace_schemas.formats import require_format
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.sink_progress import by_partition, by_topic
from tailrace_spark.sinks.files.store import FileStore

FORMAT: Final = 1
_PATH: Final = "_tailrace/reach.json"


@dataclass(frozen=True, slots=True)
class Reach:
    """Offsets behind the last change that a file may have."""

    ends: Mapping[KafkaPartition, int] = field(default_factory=dict)

    def with_ends(self, ends: Mapping[KafkaPartition, int]) -> Reach:
        """With those of other partitions, or later ones."""
        further = {partition: end for partition, end in ends.items() if end > self.ends.get(partition, 0)}
        return Reach({**self.ends, **further}) if further else self


def read_reach(store: FileStore) -> Reach:
    """That of a root. Raises SettingsError where another version wrote it."""
    if not store.exists(_PATH):
        return Reach()
    value = json.loads(store.read(_PATH))
    require_format(_PATH, value["format"], FORMAT)
    return Reach(by_partition(value["ends"]))


def write_reach(store: FileStore, reach: Reach) -> None:
    """Keep it."""
    value = {"format": FORMAT, "ends": by_topic(reach.ends)}
    store.write(_PATH, json.dumps(value).encode())
