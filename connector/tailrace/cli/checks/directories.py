"""`tailrace check` of the node's directories: cdc_raw, the commit log, the spool, the archive, segments' keys."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tailrace.capture.owner import read_owner
from tailrace.cli.checks.disks import check_segment, check_spool_disk
from tailrace.retention.spool import Spool, unwritable
from tailrace.segments.keys import keys_of_settings
from tailrace_common.cli.checks import Check, judge
from tailrace_common.settings import AgentSettings, Settings
from tailrace_schemas.errors import SettingsError

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
