"""A lake's directory on local disks: that it may be written, what is in it, and how that is removed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import PurePath

from pyarrow import fs

from tailrace_schemas.errors import ServiceError


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
