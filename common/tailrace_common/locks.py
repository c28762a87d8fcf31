"""Locks of files and folders (flock): the kernel ends one with the process that has it, however that ends."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

# Who only looks (`is_locked`) has the lock for an instant.
_ATTEMPTS: Final = 20
_ATTEMPT_SECONDS: Final = 0.05


def try_lock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file or folder until it is closed; False where another process has the lock.

    Raises OSError where the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_soon(descriptor: int, wait: Callable[[float], object] = time.sleep) -> bool:
    """As `try_lock`, again and again for a second."""
    for _ in range(_ATTEMPTS):
        if try_lock(descriptor):
            return True
        wait(_ATTEMPT_SECONDS)
    return False


def is_locked(path: Path) -> bool:
    """Whether a process has the lock of a file or folder at this instant. Raises OSError where it cannot be opened."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return not try_lock(descriptor, fcntl.LOCK_SH)  # shared: does not disturb others who only look
    finally:
        os.close(descriptor)
