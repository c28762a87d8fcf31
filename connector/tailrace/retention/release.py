"""What becomes of a segment whose last change is committed: deleted, moved into the archive, or left where it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tailrace.retention.moving import DISK, Disk, move_file


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
