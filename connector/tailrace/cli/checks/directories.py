"""`tailrace check` of the node's directories: cdc_raw, the commit log, the spool, the archive, segments' keys."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tailrace.capture.owner import read_owner
from tailrace.commitlog.blocks import NO_KEYS
from tailrace.retention.spool import Spool, unwritable
from tailrace.segments.files import SegmentFiles, list_cdc_raw
from tailrace.segments.keys import keys_of_settings
from tailrace.segments.verify import FileReport, Status, verify_segment
from tailrace_common.cli.checks import Check, judge
from tailrace_common.settings import AgentSettings, Settings
from tailrace_schemas.errors import ServiceError, SettingsError

Clock = Callable[[], float]
_MIB: Final = 1 << 20
_SAMPLE: Final = 8 * _MIB
_LEAST_FREE: Final = 256 * _MIB
# Cassandra writes cdc data at some tens of MiB a second at most; a disk that cannot follow makes the spool useless.
_SLOW_RATE: Final = 20.0
_SLOW_SYNC: Final = 0.1
_RIGHTS: Final = {"read": os.R_OK | os.X_OK, "write": os.W_OK | os.X_OK}


def check_directories(settings: Settings) -> Iterator[Check]:
    """The node's directories: there, for us to read and delete from, on one file system, their keys at hand."""
    raw = settings.agent.cdc_raw_directory
    yield _check_raw(raw)
    if not os.path.isdir(raw):
        return
    yield from _check_owner(raw, settings.topics.prefix)
    log = settings.agent.commitlog_directory
    if log is not None:
        advice = "Cassandra hard-links segments from one to the other: both must be on one file system"
        problem = _refusal(log, "read") or ("" if os.path.isdir(log) else f"{log} is not a directory")
        same_disk = not problem and log.stat().st_dev == raw.stat().st_dev
        yield judge("commitlog_directory", same_disk, problem or str(log), advice)
    yield from check_segment(settings.agent)
    yield from _check_places(settings.agent)
    if settings.agent.keystore is not None or settings.agent.segment_key is not None:
        yield _check_keys(settings.agent)


def _check_raw(raw: Path) -> Check:
    """cdc_raw is there, and finished segments can be read and deleted."""
    if refusal := _refusal(raw, "read", "write"):
        advice = "run the agent as Cassandra's user, or in a group that may do this: finished segments are deleted"
        return Check("cdc_raw_directory", False, refusal, advice)
    if not os.path.isdir(raw):
        advice = "set agent.cdc_raw_directory to the node's own, and cdc_enabled: true in cassandra.yaml"
        return Check("cdc_raw_directory", False, f"{raw} is not a directory", advice)
    return Check("cdc_raw_directory", True, f"{raw}, {shutil.disk_usage(raw).free >> 20} MiB free on its disk")


def _refusal(directory: Path, *verbs: str) -> str:
    """What this user may not do: enter a directory above, or any of these in this one; empty where nothing."""
    for parent in reversed(directory.absolute().parents):
        if os.path.isdir(parent) and not os.access(parent, os.X_OK):
            return f"this user may not enter {parent}"
    lacking = [verb for verb in verbs if os.path.exists(directory) and not os.access(directory, _RIGHTS[verb])]
    return f"this user may not {' or '.join(lacking)} {directory}" if lacking else ""


def _check_owner(directory: Path, prefix: str) -> Iterator[Check]:
    """Which agent owns cdc_raw, where one has ever run on it."""
    try:
        owner = read_owner(directory)
    except SettingsError as error:
        yield Check("cdc_raw owner", False, str(error))
        return
    if owner is not None:
        advice = "correct topics.prefix, or start the agent once with --take-over if the prefix was changed on purpose"
        yield judge("cdc_raw owner", owner.prefix == prefix, str(owner), advice)


def _check_places(settings: AgentSettings) -> Iterator[Check]:
    """Where segments go that do not stay in cdc_raw."""
    if settings.on_pressure == "spool":
        spool = Spool(settings.spool_directory, settings.spool_bytes)
        problem, room = spool.problem(), f"up to {settings.spool_bytes >> 20} MiB"
        advice = "without a spool cdc_raw fills while Kafka is away, and Cassandra refuses writes to tables with cdc"
        yield judge("spool_directory", problem is None, problem or f"{settings.spool_directory}, {room}", advice)
        if problem is None:
            yield from check_spool_disk(settings)
    if settings.on_release == "archive" and settings.archive_directory is not None:
        refused = unwritable(settings.archive_directory)
        detail = f"{settings.archive_directory}" if refused is None else f"agent.archive_directory: {refused}"
        yield judge("archive_directory", refused is None, detail, "published segments stay in cdc_raw until it is")


def _check_keys(settings: AgentSettings) -> Check:
    try:
        keys = keys_of_settings(settings)
    except SettingsError as error:
        return Check("segment keys", False, str(error), "see agent.keystore and agent.segment_key")
    return Check("segment keys", True, ", ".join(sorted(keys.by_alias)) or "one for every alias")


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
        report = None if files.log is None else verify_segment(files.log, keys)
        if report is not None and report.status is not Status.GONE:
            yield _judge_segment(report, files, clock() - began)
            return
    yield Check("segment", True, "there is none to read yet", "write to a table with cdc = true, and check again")


def _judge_segment(report: FileReport, files: SegmentFiles, seconds: float) -> Check:
    rate = report.size / _MIB / seconds if seconds > 0 else 0.0
    detail = f"{report.file}: {report.frames} mutations, {report.size >> 20} MiB read at {rate:.0f} MiB/s"
    if report.reason:
        detail += f"; {report.status}: {report.reason}"
    if report.status is Status.UNREAD:
        return Check(
            "segment", False, detail, "let this user read the segments; see agent.keystore and agent.segment_key"
        )
    advice = f"the agent reads up to the damage and keeps the file: `tailrace verify {files.log}`"
    return judge("segment", report.status is not Status.DAMAGED, detail, advice)


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
