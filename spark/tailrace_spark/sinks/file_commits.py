"""What is committed below a root of files: a manifest for each micro-batch, and how far it is in each partition."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.table import Table
from tailrace_schemas.table_json import table_from_json, table_to_json
from tailrace_spark.sinks.file_store import FileStore
from tailrace_spark.sinks.protocol import At, Place

FORMAT: Final = 1
_COMMITS: Final = "_tailrace/commits"
_DEFINITIONS: Final = "_tailrace/definitions"
_WRITER: Final = "_tailrace/writer.json"
# Each of these has the ends of all partitions; the ones between, of those that they moved.
_WHOLE: Final = 64

Ends = dict[tuple[str, int], int]
"""The offset behind the last committed record, by topic and partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedFile:
    """One file: `path` from the root; `definition` names the table's definition that all of its records are of."""

    path: str
    table: str
    day: str
    definition: str
    records: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What one micro-batch committed; its number, from 0, is its place in the order of commits.

    `dead_letters` is the path of the file of those, `replayed` the places of earlier ones whose changes its files have.
    """

    number: int
    files: tuple[CommittedFile, ...]
    ends: Ends = field(default_factory=dict)
    dead_letters: str | None = None
    replayed: tuple[At, ...] = ()


class TakenError(ServiceError):
    """Another writer committed first."""


class Commits:
    """Reads and writes the commits below one root. One stream writes, and replays of dead letters; any number
    of readers read meanwhile."""

    def __init__(self, store: FileStore) -> None:
        self._store = store
        self._definitions: dict[str, Table] = {}
        self._names: dict[int, tuple[Table, str]] = {}

    def numbers(self) -> list[int]:
        """The numbers of all commits, ascending."""
        return [int(name.removesuffix(".json")) for name in self._store.names(_COMMITS)]

    def after(self, number: int) -> Iterator[Commit]:
        """The commits behind a number, in their order."""
        for one in self.numbers():
            if one > number:
                yield self.read(one)

    def read(self, number: int) -> Commit:
        """One commit. Raises SettingsError where a newer version of Tailrace wrote it."""
        return self._read(number)[0]

    def _read(self, number: int) -> tuple[Commit, bool]:
        value = json.loads(self._store.read(_path(number)))
        if value["format"] != FORMAT:
            raise SettingsError(
                f"{_path(number)} has the format {value['format']}, later than {FORMAT}: update Tailrace"
            )
        commit = Commit(
            number=number,
            files=tuple(CommittedFile(**file) for file in value["files"]),
            ends={(topic, int(at)): end for topic, ends in value["ends"].items() for at, end in ends.items()},
            dead_letters=value["dead_letters"],
            replayed=tuple((topic, partition, offset) for topic, partition, offset in value.get("replayed", ())),
        )
        return commit, value["whole"]

    def last(self) -> tuple[int, Ends]:
        """The number of the last commit, -1 where there is none, and how far all of them together are.

        Where a crash left its files hidden, they get their names.
        """
        ends: Ends = {}
        numbers = self.numbers()
        for number in reversed(numbers):
            commit, whole = self._read(number)
            if number == numbers[-1]:
                self.show(commit)
            for place, end in commit.ends.items():
                ends.setdefault(place, end)
            if whole:
                break
        return (numbers or [-1])[-1], ends

    def claim(self, writer: str) -> None:
        """Be the one stream that writes here: whoever was it before finds out by `require`."""
        self._store.write(_WRITER, _dumped({"format": FORMAT, "writer": writer}))

    def require(self, writer: str) -> None:
        """Raises SettingsError where another stream has begun to write here since `claim`."""
        if json.loads(self._store.read(_WRITER))["writer"] != writer:
            raise SettingsError("another stream has begun to write here: give each stream a path of its own")

    def write(self, commit: Commit, ends: Ends, writer: str) -> None:
        """Commit: from here on its files are there for every reader. `ends` are those of all partitions.

        Raises TakenError, and nothing is committed, where another writer has committed under this number.
        """
        whole = commit.number % _WHOLE == 0
        value = {
            "format": FORMAT,
            "whole": whole,
            "files": [asdict(file) for file in commit.files],
            "dead_letters": commit.dead_letters,
            "ends": _nested(ends if whole else commit.ends),
            **({"replayed": commit.replayed} if commit.replayed else {}),
        }
        if not self._store.create(_path(commit.number), _dumped(value), writer):
            raise TakenError(f"{_path(commit.number)}: another writer came first; the batch comes again behind it")
        self.show(commit)

    def show(self, commit: Commit) -> None:
        """Give a commit's files their names, where that is done after the commit."""
        if self._store.renames:
            for file in commit.files:
                self._store.rename(file.path)

    def name_of(self, table: Table) -> str:
        """The name of a definition, which is kept beside the commits from here on."""
        known = self._names.get(id(table))
        if known is None:
            content = _dumped(table_to_json(table))
            name = hashlib.sha256(content).hexdigest()[:16]
            if not self._store.exists(f"{_DEFINITIONS}/{name}.json"):
                self._store.write(f"{_DEFINITIONS}/{name}.json", content)
            known = self._names[id(table)] = (table, name)  # the table, so that its id stays its own
        return known[1]

    def definition(self, name: str) -> Table:
        """The definition of a name."""
        table = self._definitions.get(name)
        if table is None:
            content = json.loads(self._store.read(f"{_DEFINITIONS}/{name}.json"))
            table = self._definitions[name] = table_from_json(content)
        return table


def is_new(place: Place, ends: Mapping[tuple[str, int], int]) -> bool:
    """Whether a record stands behind what is committed of its partition."""
    return place.offset >= ends.get((place.topic, place.partition), 0)


def _path(number: int) -> str:
    return f"{_COMMITS}/{number:020}.json"


def _dumped(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _nested(ends: Ends) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), end in ends.items():
        nested.setdefault(topic, {})[str(partition)] = end
    return nested
