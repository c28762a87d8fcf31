"""A lake's directory on local disks: that it may be written, what is in it, and a lock for those who take turns."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePath
from typing import Final

from tailrace_schemas.errors import ServiceError

_LOCK: Final = ".tailrace-lock"


def require_writable(path: str) -> None:
    """See that a directory may be written, or made. Raises ServiceError."""
    root = PurePath(path)
    nearest = next(place for place in (root, *root.parents) if os.path.exists(place))
    if not (os.path.isdir(nearest) and os.access(nearest, os.W_OK)):
        raise ServiceError(f"{nearest} is no directory that this user may write")


def directories(path: str) -> list[str]:
    """The names of the directories in one, sorted; none where it is not there yet. Raises OSError."""
    with suppress(FileNotFoundError), os.scandir(path) as found:
        return sorted(one.name for one in found if one.is_dir())
    return []


@contextmanager
def taking_turns(path: str) -> Iterator[None]:
    """While inside, no other process is that asks for the same."""
    os.makedirs(path, exist_ok=True)
    with open(f"{path}/{_LOCK}", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
