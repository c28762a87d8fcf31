"""One stream per checkpoint: two of them would write the same batches with different records.

The kernel ends the lock with the process, however that ends. The mark beside it says who has the lock.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tailrace_common.closing import Closing
from tailrace_schemas.errors import FencedError
from tailrace_spark.job.checkpoint_files import LocalFiles

log = logging.getLogger("tailrace_spark")

_MARK: Final = "owner.json"
_VERSION: Final = 1
# `require_unlocked` has the lock for an instant.
_ATTEMPTS: Final = 20
_ATTEMPT_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class StreamProcess:
    """The process of a stream; `since` is when it began, in ISO 8601."""

    hostname: str
    pid: int
    since: str


class CheckpointLock(Closing):
    """The lock of a checkpoint until it is closed, or the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def close(self) -> None:
        """End the lock; the mark stays. More than once does no harm."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def lock_checkpoint(
    folder: Path, checkpoint: str, *, now: float, wait: Callable[[float], object] = time.sleep
) -> CheckpointLock | None:
    """Lock `<checkpoint>/tailrace`, a folder of this machine, which is made where it is missing.

    `now` is the wall clock in seconds. None where its file system has no locks, which the log says. Raises FencedError
    while another stream has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for attempt in range(_ATTEMPTS):
            if _try_lock(descriptor):
                break
            if attempt == _ATTEMPTS - 1:
                raise FencedError(_busy(folder, checkpoint))
            wait(_ATTEMPT_SECONDS)
        since = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
        process = StreamProcess(os.uname().nodename, os.getpid(), since)
        LocalFiles(folder).write(_MARK, json.dumps({**asdict(process), "version": _VERSION}))
    except FencedError:
        os.close(descriptor)
        raise
    except OSError as error:
        os.close(descriptor)
        log.warning("stream.checkpoint %s cannot be locked (%s): start no second stream with it", checkpoint, error)
        return None
    return CheckpointLock(descriptor)


def require_unlocked(folder: Path, checkpoint: str) -> None:
    """Raises FencedError while a stream has the lock of this checkpoint; nothing is made or kept."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return  # there is no such checkpoint yet
    try:
        locked = _try_lock(descriptor)
    except OSError:
        return
    finally:
        os.close(descriptor)
    if not locked:
        raise FencedError(_busy(folder, checkpoint))


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _busy(folder: Path, checkpoint: str) -> str:
    try:
        mark = json.loads(LocalFiles(folder).read(_MARK) or "{}")
        owner = f" (started {mark['since']} on {mark['hostname']}, pid {mark['pid']})"
    except (OSError, ValueError, KeyError, TypeError):
        owner = ""
    return (
        f"stream.checkpoint {checkpoint}: another stream runs with it{owner}. Two streams with one checkpoint lose "
        "changes: stop that one first, or set another stream.checkpoint for this one"
    )
