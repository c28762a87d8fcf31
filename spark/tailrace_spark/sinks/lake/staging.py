"""What a batch stages of a lake's tables, and the one commit of each table that makes it count.

A file that no commit names has no reader. So attempts that do not count, of repeated shares or of an earlier driver,
leave files for a vacuum, and nothing else. A commit takes files that were made of the very state that the table has. So
of two drivers, or of two attempts at a batch, one commits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath
from typing import Any, Final, cast
from uuid import uuid4

from pyarrow import fs

from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.batch.delivery import CommitMessage
from tailrace_spark.sinks.lake.store import LakeStore, LakeTable
from tailrace_spark.sinks.protocol import HereOnlyError
from tailrace_spark.sinks.table_faults import is_of_table

_CHANGES: Final = frozenset({"make", "widen", "rewrite", "commit_staged"})
_MARK: Final = ".tailrace-directory"


@dataclass(frozen=True, slots=True)
class Staged:
    """What is staged of one table, which `identity` names: files that no commit names yet, in place of some others.

    `noted` is what the table noted under some application ids when its rows were made: on another state these would be
    there twice, or be left out. `versions` are to be noted with the files.
    """

    name: str
    identity: str
    noted: Mapping[str, int]
    versions: Mapping[str, int]
    files: tuple[Any, ...] = ()
    replaced: tuple[str, ...] = ()


def noted(table: LakeTable, applications: Iterable[str]) -> dict[str, int]:
    """What a table notes under some application ids; 0 for nothing."""
    return {application: table.version_of(application) or 0 for application in applications}


def commit(
    store: LakeStore, staged: Iterable[Staged], refusal: Callable[[str, BaseException], Exception] | None = None
) -> None:
    """One commit of each table, in the order in which they come first.

    Raises ServiceError where one is not made: the batch is redelivered, and changes nothing in the others. `refusal` is
    raised for what is a table's (table_faults).
    """
    by_name: dict[str, list[Staged]] = {}
    for table in staged:
        by_name.setdefault(table.name, []).append(table)
    for name, shares in by_name.items():
        try:
            _commit(store, name, shares)
        except BaseException as error:
            if refusal is None or not is_of_table(error):
                raise
            raise refusal(name, error) from error


def staged_by(messages: Iterable[CommitMessage]) -> list[Staged]:
    """What the shares of a batch have staged."""
    return [table for message in messages if isinstance(message.detail, tuple) for table in message.detail]


def _commit(store: LakeStore, name: str, staged: Iterable[Staged]) -> None:
    stored = store.open(name)
    versions: dict[str, int] = {}
    for share in staged:
        if stored is None or stored.identity != share.identity or noted(stored, share.noted) != share.noted:
            raise ServiceError(f"{store.uri(name)}: another writer came first: the batch is planned again")
        for application, version in share.versions.items():
            versions[application] = max(version, versions.get(application, 0))
    files = [file for share in staged for file in share.files]
    replaced = [file for share in staged for file in share.replaced]
    store.commit_staged(name, stored, files, versions, replaced)


@dataclass(frozen=True, slots=True)
class LakePlan:
    """What the shares of one plan have in common: where they are staged, and the plan's own `name`.

    `mark` is that of the store's directory, where it has one.
    """

    store: LakeStore = field(repr=False, compare=False)
    mark: str | None = field(compare=False)
    name: str

    @classmethod
    def of(cls, store: LakeStore) -> LakePlan:
        """A new one."""
        return cls(store, None if store.directory is None else mark_of(store.directory), uuid4().hex)

    def open(self) -> LakeStore:
        """As `opened_once`, for shares in one process. Raises HereOnlyError where its machine has another directory."""
        if self.store.directory is not None and self.mark is not None:
            require_same(self.store.directory, self.mark)
        return opened_once(self.store)


def opened_once(store: LakeStore) -> LakeStore:
    """The store, each table of which is opened once, so that all that use it see a table as it was then.

    What is changed by it is opened again.
    """
    return cast("LakeStore", _OpenedTables(store))


class _OpenedTables:
    """A LakeStore that remembers what it opened."""

    def __init__(self, store: LakeStore) -> None:
        self._store = store
        self._tables: dict[str, LakeTable | None] = {}

    def open(self, name: str) -> LakeTable | None:
        """The table as it was when it was first asked for."""
        if name not in self._tables:
            self._tables[name] = self._store.open(name)
        return self._tables[name]

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        return partial(self._change, method) if name in _CHANGES else method

    def _change(self, method: Callable[..., None], name: str, *args: Any, **named: Any) -> None:
        self._tables.pop(name, None)
        method(name, *args, **named)


def require_files(path: str, files: Iterable[tuple[str, int]]) -> None:
    """See that files below a directory are there, each with its bytes: tasks wrote them, perhaps on other machines.

    Raises SettingsError where one is not.
    """
    for name, size in files:
        try:
            existing = os.path.getsize(f"{path}/{name}")
        except FileNotFoundError:
            existing = -1
        if existing != size:
            raise SettingsError(
                f"{path}/{name} was written by an executor and is not here. Give the sink a path that all "
                'machines share, or S3, or set stream.execution = "driver"'
            )


def mark_of(path: str) -> str:
    """What the mark of a directory says; it is made where there is none. Whoever reads the same sees the same files.

    Raises OSError.
    """
    mark = f"{path}/{_MARK}"
    if not os.path.exists(mark):
        os.makedirs(path, exist_ok=True)
        temporary = f"{mark}-{uuid4().hex}"
        with open(temporary, "w", encoding="ascii") as file:
            file.write(uuid4().hex)
        with suppress(FileExistsError):  # of two that make one the first counts
            os.link(temporary, mark)
        os.unlink(temporary)
    with open(mark, encoding="ascii") as file:
        return file.read()


def require_same(path: str, mark: str) -> None:
    """See that a task's machine has the directory whose mark the driver read. Raises HereOnlyError."""
    try:
        with open(f"{path}/{_MARK}", encoding="ascii") as file:
            existing = file.read()
    except FileNotFoundError:
        existing = ""
    if existing != mark:
        raise HereOnlyError(f"{path} is a directory of its machine, which executors do not share")


def require_writable(path: str) -> None:
    """See that a directory may be written, or made. Raises ServiceError."""
    root = PurePath(path)
    nearest = next(folder for folder in (root, *root.parents) if os.path.exists(folder))
    if not (os.path.isdir(nearest) and os.access(nearest, os.W_OK)):
        raise ServiceError(f"{nearest} is no directory that this user may write")


def directories(path: str) -> list[str]:
    """The names of the directories in one, sorted; none where it is not there yet. Raises OSError."""
    with suppress(FileNotFoundError), os.scandir(path) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())
    return []


def local_files(path: str) -> fs.SubTreeFileSystem:
    """The pyarrow FileSystem of a directory on this machine."""
    return fs.SubTreeFileSystem(path, fs.LocalFileSystem())
