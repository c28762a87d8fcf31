"""A disk that fails at any step."""

from __future__ import annotations

import errno
from pathlib import Path

from tailrace.retention.release import Disk
from tests.support.kafka import Crash


class FaultyDisk(Disk):
    """A disk on which every step is counted, and the `nth` ends the process before it is done (`copy`: half way).

    `apart`: the two directories are of two file systems.
    """

    def __init__(self, apart: bool, nth: int = 0, error: BaseException | None = None) -> None:
        self.apart = apart
        self.nth = nth
        self.error = error or Crash()
        self.steps: list[str] = []

    def _at(self, step: str) -> None:
        self.steps.append(step)
        if len(self.steps) == self.nth:
            raise self.error

    def rename(self, source: Path, target: Path) -> None:
        """Step rename."""
        if self.apart and source.parent != target.parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        self._at("rename")
        super().rename(source, target)

    def copy(self, source: Path, target: Path) -> None:
        """Step copy."""
        target.write_bytes(source.read_bytes()[:9])
        self._at("copy")
        super().copy(source, target)

    def sync(self, directory: Path) -> None:
        """Step sync."""
        self._at("sync")
        super().sync(directory)

    def unlink(self, path: Path) -> None:
        """Step unlink."""
        self._at("unlink")
        super().unlink(path)
