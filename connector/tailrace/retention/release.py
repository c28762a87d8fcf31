"""What becomes of a segment whose last change is committed: deleted, moved into the archive, or left; moved safely."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PARTIAL: Final = ".partial"


class Disk:
    """What a move does to the disk, each a step behind which a process may end."""

    def rename(self, source: Path, target: Path) -> None:
        """Within one file system, else OSError EXDEV (between two mounts of one file system too)."""
        source.rename(target)

    def copy(self, source: Path, target: Path) -> None:
        """The content, on the disk for good when this returns."""
        with source.open("rb") as old, target.open("wb") as new:
            shutil.copyfileobj(old, new, 1 << 20)
            new.flush()
            os.fsync(new.fileno())

    def sync(self, directory: Path) -> None:
        """The names in a directory are on the disk for good."""
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def unlink(self, path: Path) -> None:
        """Gone; that it was gone already is fine."""
        path.unlink(missing_ok=True)


DISK: Final = Disk()


def move_file(source: Path, target: Path, disk: Disk = DISK) -> None:
    """Move a file that nobody writes any more; to be repeated after a crash, or an error, at any step.

    A target that is there came by a rename, so it is whole, and only the source goes. Raises OSError; then the source
    still stands, unless it was gone before (FileNotFoundError).
    """
    if not target.exists():
        try:
            disk.rename(source, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _copy(source, target, disk)
    disk.sync(target.parent)
    # A rename between two names of one file leaves both, as a link that the node's replay has made again.
    disk.unlink(source)


def copy_file(source: Path, target: Path, disk: Disk = DISK) -> None:
    """Copy a file, whole or not at all; a target that is there stays. Raises OSError."""
    if not target.exists():
        _copy(source, target, disk)
        disk.sync(target.parent)


def _copy(source: Path, target: Path, disk: Disk) -> None:
    partial = target.with_name(f".{target.name}.{os.getpid()}{PARTIAL}")
    try:
        disk.copy(source, partial)
        disk.rename(partial, target)
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def sweep(directory: Path) -> None:
    """Delete what moves that were cut off have left of their copies."""
    for partial in directory.glob(f".*{PARTIAL}"):
        partial.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Release:
    """How files go. `away` takes one file away and can be repeated (None: they are left, and never read again); `verb`
    says it to people. `target` is where a file then is, if anywhere."""

    verb: str
    away: Callable[[Path], None] | None
    target: Callable[[Path], Path] | None = None


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)


DELETED: Final = Release("delete", _unlink)


KEPT: Final = Release("keep", None)


def archived(directory: Path, disk: Disk = DISK) -> Release:
    """Files go into a directory, which is made when the first one does; one that is gone already is fine."""

    def away(path: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o750)
        try:
            move_file(path, directory / path.name, disk)
        except FileNotFoundError:
            if path.exists():
                raise

    return Release("archive", away, lambda path: directory / path.name)
