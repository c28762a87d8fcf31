"""What is committed below a root of files: manifests of batches and packs, and how far it is in each partition."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.table import Table
from tailrace_schemas.table_json import table_from_json, table_to_json
from tailrace_spark.batch.delivery import RecordId
from tailrace_spark.sinks.files.manifest import (
    Commit,
    CommittedFile,
    Ends,
    Pack,
    PackName,
    chosen,
    flat,
    nested,
    places,
)
from tailrace_spark.sinks.files.store import FileStore, GoneError

FORMAT: Final = 2
"""1 had no packs: who knows only that would miss what is packed."""
_COMMITS: Final = "_tailrace/commits"
_DEFINITIONS: Final = "_tailrace/definitions"
_PACKS: Final = "_tailrace/packs"
_WRITER: Final = "_tailrace/writer.json"
_FILE: Final = ("path", "table", "day", "definition", "records", "bytes")
# Another listing helps where a compaction took what the last one had; each lists what it put in its place.
_TRIES: Final = 10
# Each of these has the ends of all partitions; the ones between, of those that they moved.
_WHOLE: Final = 64


class TakenError(ServiceError):
    """Another writer committed first."""


class Commits:
    """Reads and writes the commits below one root. One stream writes, and compactions and replays of dead letters do;
    any number of readers read meanwhile."""

    def __init__(self, store: FileStore) -> None:
        self._store = store
        self._definitions: dict[str, Table] = {}
        self._names: dict[int, tuple[Table, str]] = {}

    def listed(self) -> tuple[list[PackName], list[int]]:
        """The packs, and the numbers of the commits behind them, ascending."""
        commits = [int(name.removesuffix(".json")) for name in self._store.names(_COMMITS)]
        packs = self.packs()  # behind the commits: those that went meanwhile are in one
        covered = packs[-1].last if packs else -1
        return packs, [commit for commit in commits if commit > covered]

    def packs(self) -> list[PackName]:
        """The packs that readers use, in the order of their commits."""
        return chosen(map(PackName.of, self._store.names(_PACKS)))

    def after(self, number: int) -> Iterator[Commit]:
        """The commits behind a number, in their order; those that are packed meanwhile come out of their pack."""
        last, tries = number, _TRIES
        while True:
            packs, unpacked = self.listed()
            try:
                for name in packs:
                    if name.last > last:
                        for commit in self.pack(name).commits():
                            if commit.number > last:
                                yield commit
                                last, tries = commit.number, _TRIES
                for commit_number in unpacked:
                    if commit_number > last:
                        yield self.read(commit_number)
                        last, tries = commit_number, _TRIES
            except GoneError:
                tries -= 1
                if not tries:
                    raise
            else:
                return

    def pack(self, name: PackName) -> Pack:
        """What a pack says. Raises SettingsError where a newer version of Tailrace wrote it."""
        return Pack.read(self._value(f"{_PACKS}/{name.file}"))

    def write_pack(self, name: PackName, pack: Pack) -> None:
        """From here on readers use this pack in place of its commits."""
        self._store.write(f"{_PACKS}/{name.file}", _dumped({"format": FORMAT, **pack.value()}))

    def forget(self, pack: PackName) -> None:
        """Take away the manifests of what a pack has; readers do without them."""
        for name in self._store.names(_COMMITS):
            if int(name.removesuffix(".json")) <= pack.last:
                self._store.remove(f"{_COMMITS}/{name}")
        for name in self._store.names(_PACKS):
            candidate = PackName.of(name)
            if candidate != pack and candidate.first >= pack.first and candidate.last <= pack.last:
                self._store.remove(f"{_PACKS}/{name}")

    def read(self, number: int) -> Commit:
        """One commit that is not packed. Raises GoneError where it is, or is none; SettingsError where a newer version
        of Tailrace wrote it."""
        return self._read(number)[0]

    def _value(self, path: str) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self._store.read(path))
        if value["format"] > FORMAT:
            raise SettingsError(f"{path} has the format {value['format']}, later than {FORMAT}: update Tailrace")
        return value

    def _read(self, number: int) -> tuple[Commit, bool]:
        value = self._value(_path(number))
        commit = Commit(
            number=number,
            files=tuple(CommittedFile(**file) for file in value["files"]),
            ends=flat(value["ends"]),
            dead_letters=value["dead_letters"],
            replayed=places(value.get("replayed", ())),
        )
        return commit, value["whole"]

    def last(self) -> tuple[int, Ends]:
        """The number of the last commit, -1 where there is none, and how far all of them together are.

        Where a crash left its files hidden, they get their names.
        """
        for tries_left in reversed(range(_TRIES)):
            packs, numbers = self.listed()
            try:
                return self._last(packs, numbers)
            except GoneError:  # packed meanwhile
                if not tries_left:
                    raise
        raise AssertionError("the tries end with a result or an error")

    def _last(self, packs: Sequence[PackName], numbers: Sequence[int]) -> tuple[int, Ends]:
        ends: Ends = {}
        for commit_number in reversed(numbers):
            commit, has_all_ends = self._read(commit_number)
            if commit_number == numbers[-1]:
                self.show(commit)
            ends = {**commit.ends, **ends}
            if has_all_ends:
                return numbers[-1], ends
        if packs:
            ends = {**self.pack(packs[-1]).ends, **ends}
        return (numbers or [name.last for name in packs] or [-1])[-1], ends

    def claim(self, writer: str) -> None:
        """Be the one stream that writes here: whoever was it before finds out by `require`."""
        self._store.write(_WRITER, _dumped({"format": FORMAT, "writer": writer}))

    def require(self, writer: str) -> None:
        """Raises SettingsError where another stream has begun to write here since `claim`."""
        if self._value(_WRITER)["writer"] != writer:
            raise SettingsError("another stream has begun to write here: give each stream a path of its own")

    def write(self, commit: Commit, ends: Ends, writer: str) -> None:
        """Commit: from here on its files are there for every reader. `ends` are those of all partitions.

        Raises TakenError, and nothing is committed, where another writer has committed under this number.
        """
        has_all_ends = commit.number % _WHOLE == 0
        value = {
            "format": FORMAT,
            "whole": has_all_ends,
            "files": [{name: getattr(file, name) for name in _FILE} for file in commit.files],
            "dead_letters": commit.dead_letters,
            "ends": nested(ends if has_all_ends else commit.ends),
            **({"replayed": commit.replayed} if commit.replayed else {}),
        }
        created = self._store.create(_path(commit.number), _dumped(value), writer)
        # The name may be free since another's manifest was packed: this one then says nothing to anybody.
        packs = self.packs()
        if not created or (packs and packs[-1].last >= commit.number):
            raise TakenError(f"{_path(commit.number)}: another writer came first; the batch comes again behind it")
        self.show(commit)

    def show(self, commit: Commit) -> None:
        """Give a commit's files their names, where that is done after the commit."""
        if self._store.renames:
            for file in commit.files:
                self._store.rename(file.path)

    def name_of(self, table: Table) -> str:
        """The name of a definition, which is kept beside the commits from here on."""
        named = self._names.get(id(table))
        if named is None:
            content = _dumped(table_to_json(table))
            name = hashlib.sha256(content).hexdigest()[:16]
            if not self._store.exists(f"{_DEFINITIONS}/{name}.json"):
                # Of tasks that write the same one at a time, one does.
                self._store.create(f"{_DEFINITIONS}/{name}.json", content, uuid4().hex)
            named = self._names[id(table)] = (table, name)  # the table, so that its id stays its own
        return named[1]

    def definition(self, name: str) -> Table:
        """The definition of a name."""
        table = self._definitions.get(name)
        if table is None:
            content = json.loads(self._store.read(f"{_DEFINITIONS}/{name}.json"))
            table = self._definitions[name] = table_from_json(content)
        return table


def is_new(record_id: RecordId, ends: Mapping[tuple[str, int], int]) -> bool:
    """Whether a record stands behind what is committed of its partition."""
    return record_id.offset >= ends.get((record_id.topic, record_id.partition), 0)


def _path(number: int) -> str:
    return f"{_COMMITS}/{number:020}.json"


def _dumped(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
