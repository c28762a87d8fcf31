"""What manifests of a files sink say, each batch's own and those of many batches together. Values and JSON, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from tailrace_spark.batch.delivery import RecordKey

Ends = dict[tuple[str, int], int]
"""The offset behind the last committed record, by topic and partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedFile:
    """One file: `path` from the root; `definition` names the table's definition that all of its records are of.

    Where batches were packed it is the part of a file that one commit has: its `records` from row `begin` on. `bytes`
    are the file's, and `rows`, where they are more than `records`.
    """

    path: str
    table: str
    day: str
    definition: str
    records: int
    bytes: int
    begin: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What one micro-batch committed; its number, from 0, is its place in the order of commits.

    `dead_letters` is the path of the file of those, `replayed` the places of earlier ones whose changes its files have.
    `ends` of a commit that was packed are not kept: those of its pack's last commit are of all partitions.
    """

    number: int
    files: tuple[CommittedFile, ...]
    ends: Ends = field(default_factory=dict)
    dead_letters: str | None = None
    replayed: tuple[RecordKey, ...] = ()


class PackName(NamedTuple):
    """A pack by the name of its manifest: the commits that it has, both included, and who wrote it."""

    first: int
    last: int
    id: str

    @classmethod
    def of(cls, name: str) -> Self:
        """From the name of its file."""
        first, last, writer = name.removesuffix(".json").split("-")
        return cls(int(first), int(last), writer)

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.first:020}-{self.last:020}-{self.id}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedFile:
    """A file of a pack: `parts` says how many rows each commit has in it, in the order of the rows."""

    path: str
    table: str
    day: str
    definition: str
    bytes: int
    parts: tuple[tuple[int, int], ...]

    @property
    def rows(self) -> int:
        """All of them."""
        return sum(records for _, records in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """What the commits from `first` to `last` committed; readers see it in their place.

    `ends` are those of all partitions behind the last. `letters` and `replayed` have the numbers of their commits.
    """

    first: int
    last: int
    files: tuple[PackedFile, ...]
    ends: Ends
    letters: tuple[tuple[int, str], ...] = ()
    replayed: tuple[tuple[int, tuple[RecordKey, ...]], ...] = ()

    def commits(self) -> Iterator[Commit]:
        """The commits again, each with its parts of files."""
        files: dict[int, list[CommittedFile]] = {}
        for file in self.files:
            begin, rows = 0, file.rows
            for commit, records in file.parts:
                files.setdefault(commit, []).append(
                    CommittedFile(
                        path=file.path, table=file.table, day=file.day, definition=file.definition, records=records,
                        bytes=file.bytes, begin=begin, rows=rows,
                    )
                )  # fmt: skip
                begin += records
        letters, replayed = dict(self.letters), dict(self.replayed)
        for commit in range(self.first, self.last + 1):
            yield Commit(
                number=commit,
                files=tuple(files.get(commit, ())),
                ends=self.ends if commit == self.last else {},
                dead_letters=letters.get(commit),
                replayed=replayed.get(commit, ()),
            )

    @classmethod
    def of(cls, commits: Sequence[Commit], ends: Ends) -> Self:
        """Of commits one behind the other, at least one; `ends` are those of all partitions behind the last."""
        return cls(
            first=commits[0].number,
            last=commits[-1].number,
            files=tuple(packed_files(commits)),
            ends=ends,
            letters=tuple(
                (commit.number, commit.dead_letters) for commit in commits if commit.dead_letters is not None
            ),
            replayed=tuple((commit.number, commit.replayed) for commit in commits if commit.replayed),
        )

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> Self:
        """From JSON."""
        return cls(
            first=value["first"],
            last=value["last"],
            files=tuple(PackedFile(**{**file, "parts": _pairs(file["parts"])}) for file in value["files"]),
            ends=flat(value["ends"]),
            letters=_pairs(value["letters"]),
            replayed=tuple((commit, places(keys)) for commit, keys in value["replayed"]),
        )

    def value(self) -> dict[str, object]:
        names = ("path", "table", "day", "definition", "bytes", "parts")
        return {
            "first": self.first,
            "last": self.last,
            "files": [{name: getattr(file, name) for name in names} for file in self.files],
            "ends": nested(self.ends),
            "letters": self.letters,
            "replayed": self.replayed,
        }


def chosen(names: Iterable[PackName]) -> list[PackName]:
    """The packs that readers use: one behind the other, of several from the same commit on the one that has most.

    So one that takes in others needs them no more, and what two commands made at a time is read once.
    """
    packs: list[PackName] = []
    for name in sorted(names, key=lambda name: (name.first, -name.last, name.id)):
        if not packs or name.first > packs[-1].last:
            packs.append(name)
    return packs


def packed_files(commits: Iterable[Commit]) -> list[PackedFile]:
    """The files of some commits, each once, in the order of the first commit that has some of it."""
    parts: dict[str, list[tuple[int, int]]] = {}
    by_path: dict[str, CommittedFile] = {}
    for commit in commits:
        for file in commit.files:
            parts.setdefault(file.path, []).append((commit.number, file.records))
            by_path.setdefault(file.path, file)
    return [
        PackedFile(
            path=path, table=file.table, day=file.day, definition=file.definition, bytes=file.bytes,
            parts=summed(parts[path]),
        )
        for path, file in by_path.items()
    ]  # fmt: skip


def summed(parts: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The rows of each commit; those of one commit that stand together, together."""
    totals: list[tuple[int, int]] = []
    for commit, records in parts:
        if totals and totals[-1][0] == commit:
            totals[-1] = commit, totals[-1][1] + records
        else:
            totals.append((commit, records))
    return tuple(totals)


def nested(ends: Ends) -> dict[str, dict[str, int]]:
    """Ends as JSON has them."""
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), end in ends.items():
        by_topic.setdefault(topic, {})[str(partition)] = end
    return by_topic


def flat(value: Mapping[str, Mapping[str, int]]) -> Ends:
    """Ends out of JSON."""
    return {(topic, int(partition)): end for topic, ends in value.items() for partition, end in ends.items()}


def places(value: Iterable[Sequence[Any]]) -> tuple[RecordKey, ...]:
    """Places out of JSON."""
    return tuple((topic, partition, offset) for topic, partition, offset in value)


def _pairs(value: Iterable[Sequence[Any]]) -> tuple[tuple[Any, Any], ...]:
    return tuple((first, second) for first, second in value)
