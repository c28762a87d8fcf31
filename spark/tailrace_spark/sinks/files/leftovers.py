"""Files of batches that no manifest has: those of tasks that were repeated, and of drivers and tasks that died."""

from __future__ import annotations

import re
from typing import Final

from tailrace_spark.sinks.files.commits import Commits
from tailrace_spark.sinks.files.store import FileStore

# The commit that an attempt was to be, its writer, the number of its attempt, a task's own id, the number of its file.
_OF_BATCH: Final = re.compile(r"\.?([0-9]{20})-[0-9a-f]{12}-[0-9]+(-[0-9a-f]{12})?-[0-9]+\.(parquet|jsonl|jsonl\.gz)")
_SHORTEST_HOURS: Final = 1.0
"""A replay of dead letters may commit a file behind the commit that its name says: within this time."""


def remove_leftovers(store: FileStore, commits: Commits, hours: float, now: float) -> int:
    """Remove files whose commit there is without them, and that are older than so many hours; how many.

    `now` is in seconds since 1970, as the file system has it. Raises ServiceError.
    """
    until = now - 3600 * max(hours, _SHORTEST_HOURS)
    last, _ = commits.last()
    old_files = [path for path, modified in store.below() if modified < until and _commit_of(path) <= last]
    if not old_files:
        return 0
    # Behind the listing: what was committed meanwhile is in use.
    used = {file.path for commit in commits.after(-1) for file in commit.files}
    unused = [path for path in old_files if _shown(path) not in used]
    for path in unused:
        store.remove(_shown(path))
    return len(unused)


def _commit_of(path: str) -> float:
    """The commit that a file was written for; infinite for one that is of no batch."""
    named = _OF_BATCH.fullmatch(path.rpartition("/")[2])
    return float("inf") if named is None else int(named[1])


def _shown(path: str) -> str:
    """The path that a file has once it is committed."""
    directory, _, name = path.rpartition("/")
    return f"{directory}/{name.removeprefix('.')}"
