"""Small files of a table's day put together, and the manifests of many batches: beside a stream and readers.

What makes it so is the manifest of a pack, written in one step when the files that it names are whole. Before it
nobody sees anything of this; from then on readers use it. Only readers that began before need the files and manifests
that it replaces. Those files stay for some hours; what is to go then, and what a crash would leave, is noted in
`_tailrace/work` beforehand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import PurePosixPath
from typing import Any, Final
from uuid import uuid4

from tailrace_schemas.formats import FIRST, require_format
from tailrace_spark.sinks.files.commits import Commits
from tailrace_spark.sinks.files.formats import joined
from tailrace_spark.sinks.files.leftovers import remove_leftovers
from tailrace_spark.sinks.files.manifest import Ends, Pack, PackedFile, PackName, packed_files, summed
from tailrace_spark.sinks.files.store import FileStore, answering, hidden

PACK_COMMITS: Final = 10_000
"""A pack that has so many commits is left as it is: a week of one-minute batches."""
FORMAT: Final = 1
"""Of the notes of what is to go."""

_WORK: Final = "_tailrace/work"


@dataclass(frozen=True, slots=True)
class Compacted:
    """What was done: commits packed, files put together into fewer, files of earlier times removed."""

    commits: int = 0
    joined: int = 0
    made: int = 0
    removed: int = 0

    def __add__(self, other: Compacted) -> Compacted:
        return Compacted(
            self.commits + other.commits,
            self.joined + other.joined,
            self.made + other.made,
            self.removed + other.removed,
        )


@dataclass(slots=True)
class _Growing:
    """A file of the pack to be: where it comes from, in order, and what it has."""

    sources: list[PackedFile] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.sources)


class Compaction:
    """Of one root; `file_bytes` is about how large files become. Raises ServiceError where the file system fails.

    It may be killed at any step, run beside a stream, readers and itself, and be run again.
    """

    def __init__(
        self, store: FileStore, file_bytes: int, clock: Callable[[], float], *, pack_commits: int = PACK_COMMITS
    ) -> None:
        """`clock`: seconds since 1970. A pack has up to `pack_commits` commits."""
        self._pack_commits = pack_commits
        self._store = store
        self._commits = Commits(store)
        self._file_bytes = file_bytes
        self._clock = clock

    def run(self, hours: float) -> Compacted:
        """Pack all commits so far; remove files that were replaced, or left by a crash, more than so many hours ago."""
        done = Compacted()
        until, _ = self._commits.last()
        while some := self._pack(until):
            done += some
        leftovers = remove_leftovers(self._store, self._commits, hours, self._clock())
        return done + Compacted(removed=self._tidy(hours) + leftovers)

    def _pack(self, until: int) -> Compacted | None:
        """One pack more, or a larger one in place of the last; None where no commit up to a number is left."""
        packs, unpacked = self._commits.listed()
        numbers = [commit_number for commit_number in unpacked if commit_number <= until]
        open_pack = packs[-1] if packs and packs[-1].last - packs[-1].first + 1 < self._pack_commits else None
        packed = [] if open_pack is None else list(self._commits.pack(open_pack).commits())
        new = [self._commits.read(commit_number) for commit_number in numbers[: self._pack_commits - len(packed)]]
        if not new:
            return None
        full_packs = packs[:-1] if open_pack is not None else packs
        ends: Ends = self._commits.pack(full_packs[-1]).ends if full_packs else {}
        all_commits = (*packed, *new)
        for commit in all_commits:
            ends = {**ends, **commit.ends}
        for commit in new:
            self._commits.show(commit)
        name = PackName((packed or new)[0].number, new[-1].number, uuid4().hex[:12])
        files = packed_files(all_commits)
        groups = list(_grouped(files, self._file_bytes))
        joined_files = self._planned(groups, name)
        replaced = [source.path for group in groups for source in group.sources]
        paths = [*replaced, *(file.path for file in joined_files)]
        self._note(name.id, paths)
        for group, file in zip(groups, joined_files, strict=True):
            self._join(group, file.path)
        # Another run takes what was noted hours ago for what a crash has left: noted again, then looked for.
        self._note(name.id, paths)
        sized = [replace(file, bytes=self._size(file.path)) for file in joined_files]
        unchanged = [file for file in files if file.path not in set(replaced)]
        pack = replace(
            Pack.of(all_commits, ends),
            files=tuple(sorted((*unchanged, *sized), key=lambda file: (file.table, file.day, file.path))),
        )
        self._commits.write_pack(name, pack)
        return Compacted(commits=len(new), joined=len(replaced), made=len(joined_files))

    def _planned(self, groups: Sequence[_Growing], name: PackName) -> list[PackedFile]:
        numbers = count()
        planned = []
        for group in groups:
            first = group.sources[0]
            directory, suffix = PurePosixPath(first.path).parent, _suffix(first.path)
            path = f"{directory}/{name.last:020}-pack-{name.id}-{next(numbers)}{suffix}"
            parts = tuple(span for source in group.sources for span in source.parts)
            planned.append(
                PackedFile(
                    path=path, table=first.table, day=first.day, definition=first.definition, bytes=0,
                    parts=summed(parts),
                )
            )  # fmt: skip
        return planned

    def _join(self, group: _Growing, path: str) -> None:
        temporary = hidden(path) if self._store.renames else path
        stream = self._store.open(temporary)
        with answering(path):
            joined(stream, [source.path for source in group.sources], self._store.input)
        self._store.settle(temporary)

    def _size(self, path: str) -> int:
        return self._store.size(hidden(path) if self._store.renames else path)

    def _note(self, id: str, paths: Sequence[str]) -> None:
        """What is to go some time, unless it is in use."""
        self._store.write(
            f"{_WORK}/{id}.json", json.dumps({"format": FORMAT, "at": int(self._clock()), "paths": paths}).encode()
        )

    def _noted(self, name: str) -> dict[str, Any]:
        note: dict[str, Any] = json.loads(self._store.read(f"{_WORK}/{name}"))
        require_format(f"{_WORK}/{name}", note.get("format", FIRST), FORMAT)
        return note

    def _tidy(self, hours: float) -> int:
        """Whatever is in use gets its name, and what is not goes out of sight, and later away."""
        notes = {name: self._noted(name) for name in self._store.names(_WORK)}
        packs = self._commits.packs()
        if packs:
            self._commits.forget(packs[-1])
        if not notes:
            return 0
        used = {file.path for commit in self._commits.after(-1) for file in commit.files}
        removed = 0
        for name, note in notes.items():
            for path in note["paths"]:
                if path not in used:
                    self._store.hide(path)
            for path in note["paths"]:
                if path in used and self._store.renames:
                    self._store.rename(path)
            if self._clock() - self._noted(name)["at"] >= hours * 3600:
                for path in note["paths"]:
                    if path not in used:
                        self._store.remove(path)
                        removed += 1
                self._store.remove(f"{_WORK}/{name}")
        return removed


def _grouped(files: Iterable[PackedFile], file_bytes: int) -> Iterator[_Growing]:
    """Small files of one definition, day and format that are to be one, in the order of their commits."""
    growing: dict[tuple[str, str, str, str], _Growing] = {}
    ended: list[_Growing] = []
    for file in files:
        if file.bytes >= file_bytes // 2:
            continue
        of = file.table, file.day, file.definition, _suffix(file.path)
        group = growing.setdefault(of, _Growing())
        # Rows stay in the order of their commits, so that readers go through a file once.
        overlaps = group.sources and file.parts[0][0] < group.sources[-1].parts[-1][0]
        if group.sources and (overlaps or group.bytes + file.bytes > file_bytes):
            ended.append(group)
            group = growing[of] = _Growing()
        group.sources.append(file)
    yield from (group for group in (*ended, *growing.values()) if len(group.sources) > 1)


def _suffix(path: str) -> str:
    return "".join(PurePosixPath(path).suffixes[-2:] if path.endswith(".gz") else PurePosixPath(path).suffixes[-1:])
