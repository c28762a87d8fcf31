"""Files of batches that no manifest has: those of tasks that were repeated, and of drivers and tasks that died."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

from tailrace_spark.sinks.files.commits import Commits
from tailrace_spark.sinks.files.store import FileStore

# The commit that an attempt was to be, its writer, the number of its attempt, a task's own id, the number of its file.
_OF_BATCH: Final = re.compile(r"\.?([0-9]{20})-[0-9a-f]{12}-[0-9]+(-[0-9a-f]{12})?-[0-9]+\.(parquet|jsonl|jsonl\.gz)")
# The last commit of a pack, its id, the number of its file.
_OF_PACK: Final = re.compile(r"\.?[0-9]{20}-pack-[0-9a-f]{12}-[0-9]+\.(parquet|jsonl|jsonl\.gz)")
_SHORTEST_HOURS: Final = 1.0
"""A replay of dead letters may commit a file behind the commit that its name says: within this time."""


def remove_leftovers(store: FileStore, commits: Commits, hours: float, now: float) -> int:
    """Remove files whose commit there is without them, and that are older than so many hours; how many.

    `now` is in seconds since 1970, as the file system has it. Raises ServiceError.
    """
    until = now - 3600 * max(hours, _SHORTEST_HOURS)
    last, _ = commits.last()
    old_files = [path for path, modified in store.below() if modified < until and _commit_of(path) <= last]
    return len(_without_commit_removed(store, commits, old_files))


def remove_unused(store: FileStore, commits: Commits, directories: Collection[str]) -> set[str]:
    """Remove the files of batches and packs below some directories that no commit has; those where some were.

    No stream may write meanwhile. Files of other names stay. Raises ServiceError.
    """
    own_files = [path for path, _ in store.below() if _directory(path) in directories and _is_own(path)]
    return set(map(_directory, _without_commit_removed(store, commits, own_files)))


def _without_commit_removed(store: FileStore, commits: Commits, listed: Sequence[str]) -> list[str]:
    """Remove those of the listed files that no commit has; their paths."""
    if not listed:
        return []
    # Behind the listing: what was committed meanwhile is in use.
    used = {file.path for commit in commits.after(-1) for file in commit.files}
    unused = [path for path in listed if _shown(path) not in used]
    for path in unused:
        store.remove(_shown(path))
    return unused


def _directory(path: str) -> str:
    """The directory of a table below the root, which a path begins with."""
    return path.partition("/")[0]


def _is_own(path: str) -> bool:
    name = path.rpartition("/")[2]
    return _OF_BATCH.fullmatch(name) is not None or _OF_PACK.fullmatch(name) is not None


def _commit_of(path: str) -> float:
    """The commit that a file was written for; infinite for one that is of no batch."""
    named = _OF_BATCH.fullmatch(path.rpartition("/")[2])
    return float("inf") if named is None else int(named[1])


def _shown(path: str) -> str:
    """The path that a file has once it is committed."""
    directory, _, name = path.rpartition("/")
    return f"{directory}/{name.removeprefix('.')}"
