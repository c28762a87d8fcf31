"""The names of files, which say where their changes stand in Kafka: what wrote a file, and when, makes no difference.

Kafka's topic, partition, and the first and last offset of a file's changes; of a mutation's changes the first one's
counts (`transactions`). A dead letter that was replayed has a file of its own. Values alone, no I/O.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, Self

from tailrace_common.sections.template import directory_name, fit
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition

_LONGEST_TOPIC: Final = 60  # some file systems have 143 bytes for a name
_NAME: Final = re.compile(r"(.+-[0-9]+)-([0-9]{20})-(?:([0-9]{20})|replayed)\.(?:parquet|jsonl|jsonl\.gz)")


class FileName(NamedTuple):
    """A file by its name: `source` is that of its topic's partition. `last` is None for a replayed dead letter."""

    source: str
    first: int
    last: int | None

    @classmethod
    def of(cls, path: str) -> Self | None:
        """From its path; None for a name that is not ours."""
        named = _NAME.fullmatch(path.rpartition("/")[2])
        if named is None:
            return None
        return cls(named[1], int(named[2]), None if named[3] is None else int(named[3]))

    def with_suffix(self, suffix: str) -> str:
        """The name of a file."""
        end = "replayed" if self.last is None else f"{self.last:020}"
        return f"{self.source}-{self.first:020}-{end}{suffix}"


def source_of(partition: KafkaPartition) -> str:
    """What the names of the files of a topic's partition begin with, and of no other's."""
    return f"{fit(partition[0], _LONGEST_TOPIC)}-{partition[1]}"


def directory_of(table: Table, day: str | None = None) -> str:
    """That of a table's files, or of those of a day."""
    of_table = directory_name(table.keyspace, table.name)
    return of_table if day is None else f"{of_table}/day={day}"
