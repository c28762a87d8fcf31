"""`tailrace check` of what is read and written: a segment of cdc_raw, and the disk of the spool."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tailrace.commitlog.encryption import NO_KEYS
from tailrace.segments.directory import SegmentFiles, list_cdc_raw
from tailrace.segments.keys import keys_of_settings
from tailrace.segments.verify import Status, Verdict, verify_segment
from tailrace_common.cli.checks import Check, judge
from tailrace_common.settings import AgentSettings
from tailrace_schemas.errors import ServiceError, SettingsError

Clock = Callable[[], float]
_MIB: Final = 1 << 20
_SAMPLE: Final = 8 * _MIB
_LEAST_FREE: Final = 256 * _MIB
# Cassandra writes cdc data at some tens of MiB a second at most; a disk that cannot follow makes the spool useless.
_SLOW_RATE: Final = 20.0
_SLOW_SYNC: Final = 0.1


def check_segment(settings: AgentSettings, clock: Clock = time.monotonic) -> Iterator[Check]:
    """The newest segment of cdc_raw that can be opened is read as the agent reads it: header, sections, checksums."""
    try:
        listing = list_cdc_raw(settings.cdc_raw_directory)
        keys = keys_of_settings(settings) if settings.keystore or settings.segment_key else NO_KEYS
    except (ServiceError, SettingsError):
        return  # the rows of the directory and of the keys say it
    # Those with an index have data for certain; Cassandra also links segments that nothing was written to yet.
    for files in sorted(listing.segments, key=lambda files: (files.index is not None, files.id), reverse=True):
        began = clock()
        verdict = None if files.log is None else verify_segment(files.log, keys)
        if verdict is not None and verdict.status is not Status.GONE:
            yield _judge_segment(verdict, files, clock() - began)
            return
    yield Check("segment", True, "there is none to read yet", "write to a table with cdc = true, and check again")


def _judge_segment(verdict: Verdict, files: SegmentFiles, seconds: float) -> Check:
    rate = verdict.size / _MIB / seconds if seconds > 0 else 0.0
    detail = f"{verdict.file}: {verdict.frames} mutations, {verdict.size >> 20} MiB read at {rate:.0f} MiB/s"
    if verdict.reason:
        detail += f"; {verdict.status}: {verdict.reason}"
    if verdict.status is Status.UNREAD:
        return Check(
            "segment", False, detail, "let this user read the segments; see agent.keystore and agent.segment_key"
        )
    advice = f"the agent reads up to the damage and keeps the file: `tailrace verify {files.log}`"
    return judge("segment", verdict.status is not Status.DAMAGED, detail, advice)


def check_spool_disk(settings: AgentSettings, clock: Clock = time.monotonic) -> Iterator[Check]:
    """How fast the spool's disk takes bytes, and how many it has room for. Leaves nothing behind."""
    if settings.on_pressure != "spool":
        return
    spool = settings.spool_directory.absolute()
    existing = next(path for path in (spool, *spool.parents) if path.is_dir())
    free = shutil.disk_usage(existing).free
    try:
        rate, sync = _measured(existing, clock) if free > _LEAST_FREE else (0.0, 0.0)
    except OSError as error:
        yield Check("spool disk", False, f"{existing}: {error.strerror}", "let this user write agent.spool_directory")
        return
    room = f"{free >> 20} MiB free, agent.spool_bytes is {settings.spool_bytes >> 20} MiB"
    if free <= _LEAST_FREE:
        yield Check("spool disk", False, f"{existing}: {room}", "choose a disk with room: agent.spool_directory")
        return
    advice = []
    if free < settings.spool_bytes:
        advice.append("the disk is full before the spool is: lower agent.spool_bytes, or choose a larger disk")
    if rate < _SLOW_RATE or sync > _SLOW_SYNC:
        advice.append("the disk is slow: cdc_raw may fill faster than segments are moved; choose another disk")
    yield Check(
        "spool disk", True, f"{existing}: {rate:.0f} MiB/s, fsync {1000 * sync:.0f} ms; {room}", "; ".join(advice)
    )


def _measured(directory: Path, clock: Clock) -> tuple[float, float]:
    """MiB a second of a file that is written and synced, and seconds of one sync of a block. Raises OSError."""
    block = os.urandom(_MIB)
    with tempfile.TemporaryFile(dir=directory) as file:
        began = clock()
        for _ in range(_SAMPLE // _MIB):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        written = clock()
        file.write(block[:4096])
        file.flush()
        os.fsync(file.fileno())
        return _SAMPLE / _MIB / max(written - began, 1e-6), clock() - written
