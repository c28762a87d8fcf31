"""A directory that tasks on several machines write, and one driver commits: that all of them have the same one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import PurePath
from typing import Final
from uuid import uuid4

from pyarrow import fs

from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.sinks.protocol import HereOnlyError

_MARK: Final = ".tailrace-directory"


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
