"""Takes away the files of source tables: a pack has all commits without them, so readers miss all of them at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from uuid import uuid4

from tailrace_common.sections.template import directory_name
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import table_topic
from tailrace_spark.sinks.files.commits import Commits
from tailrace_spark.sinks.files.leftovers import remove_unused
from tailrace_spark.sinks.files.manifest import Pack, PackName
from tailrace_spark.sinks.files.store import FileStore


def drop_files(store: FileStore, commits: Commits, tables: Iterable[Table], prefix: str) -> list[str]:
    """Remove the files of these tables, and what is noted of their topics: the directories that had some, in order.

    Dead letters stay, and so do files of other names. `prefix` is the topics'. No stream may write meanwhile. A crash
    leaves files that no reader of commits sees, and that another call removes. Raises ServiceError.
    """
    sources = tuple(tables)
    names = {str(table) for table in sources}
    topics = {topic for table in sources for topic in _topics(prefix, table)}
    _, ends = commits.last()
    committed = list(commits.after(-1))
    remaining_ends = {partition: end for partition, end in ends.items() if partition[0] not in topics}
    remaining = [
        replace(commit, files=tuple(file for file in commit.files if file.table not in names)) for commit in committed
    ]
    if (remaining, remaining_ends) != (committed, ends):
        pack = Pack.of(remaining, remaining_ends)
        name = PackName(pack.first, pack.last, uuid4().hex[:12])
        commits.write_pack(name, pack)
        commits.forget(name)
        if commits.packs() != [name]:
            raise ServiceError("a compaction packed the commits meanwhile: drop the files again once it has ended")
    return sorted(remove_unused(store, commits, {directory_name(table.keyspace, table.name) for table in sources}))


def _topics(prefix: str, table: Table) -> tuple[str, str]:
    """The topic of a table, and the one that it has where Kafka holds that for another's."""
    topic = table_topic(prefix, table.keyspace, table.name, table.id)
    return topic, table_topic(prefix, table.keyspace, table.name, table.id, (topic,))
