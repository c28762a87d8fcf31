"""The agent's care for cdc_raw as the settings say: spool, archive, pressure, and what the end says of losses."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tailrace.assembly.node import NodeSettings, tell_node_settings
from tailrace.capture.cdcraw import CdcRaw
from tailrace.capture.recovery import is_commitlog_of
from tailrace.commitlog.blocks import Keys
from tailrace.errors import DataLossError
from tailrace.ops.headroom import NodeLimits, limits_of
from tailrace.ops.health import Health, HealthBoard
from tailrace.retention.missing import Register
from tailrace.retention.pressure import Mode, Policy, Tender, Tending
from tailrace.retention.release import DELETED, KEPT, Release, archived
from tailrace.retention.spool import Spool
from tailrace.segments.kept import KeptSegments
from tailrace.state import QUARANTINED_CAUSE, Resume
from tailrace_common.settings import AgentSettings
from tailrace_schemas.position import Position

_LOG: Final = logging.getLogger("tailrace.agent")
# The node's limits can be changed while it runs (nodetool, JMX), which nobody tells us.
_LIMITS_SECONDS: Final = 60.0
_WRONG_SECONDS: Final = 5.0
_TEND_SECONDS_MOST: Final = 1.0
QUARANTINED: Final = 3


class Care:
    """One agent's; outlives its sessions with Kafka. `node` reads the node's settings, and health tells of them."""

    def __init__(
        self,
        settings: AgentSettings,
        host: str,
        health: HealthBoard,
        node: Callable[[], NodeSettings],
        kept_segments: KeptSegments | None = None,
    ) -> None:
        self._settings = settings
        self._host = host
        self._health = health
        self._kept = kept_segments
        self._node = node
        self._limits = _Limits(node, health, time.monotonic)
        self.register = Register(lambda: self._limits().may_delete, time.monotonic)
        # Also where nothing is to be moved now: what an earlier agent moved there must be read.
        self.spool = Spool(settings.spool_directory / host, settings.spool_bytes)

    def begin(self) -> Tending:
        """Look after cdc_raw from now on, in a thread of its own."""
        tender = Tender(
            self._settings.cdc_raw_directory,
            self.spool,
            self.register,
            Policy(mode=Mode(self._settings.on_pressure), percent=self._settings.pressure_percent),
            self._health,
            self._limits,
            time.monotonic,
        )
        return Tending(tender, min(self._settings.poll_seconds, _TEND_SECONDS_MOST))

    def capture(self, resume: Resume, keys: Keys) -> CdcRaw:
        """The reader of a session."""
        epoch = (resume.position or Position(1, -1, 0)).epoch
        return CdcRaw(
            self._settings.cdc_raw_directory,
            resume,
            keys,
            spool=self.spool,
            register=self.register,
            release=release_of(self._settings, self._host, epoch),
            early=self._settings.early,
            kept_segments=self._kept,
            commitlog=self._commitlog,
            capacity=lambda: self._limits().log_segments,
        )

    def _commitlog(self) -> Path | None:
        """The commit log's directory, as the settings or the node say; None where it does not look like it here."""
        directory = self._settings.commitlog_directory
        if directory is None and (node_directory := self._node().values.get("commitlog_directory")):
            directory = Path(node_directory)
        cdc_raw_directory = self._settings.cdc_raw_directory
        return directory if directory is not None and is_commitlog_of(directory, cdc_raw_directory) else None


class _Limits:
    """The node's limits of cdc_raw: read once a minute, and more often while something is wrong.

    The last ones stay valid where the node does not answer.
    """

    def __init__(self, node: Callable[[], NodeSettings], health: HealthBoard, clock: Callable[[], float]) -> None:
        self._node = node
        self._health = health
        self._clock = clock
        self._next = float("-inf")
        self._last = NodeLimits()

    def __call__(self) -> NodeLimits:
        now = self._clock()
        if now >= self._next:
            node = self._node()
            if words := tell_node_settings(self._health, node):
                _LOG.error("%s", words)
            self._next = now + (_WRONG_SECONDS if node.cdc_disabled or not node.answered else _LIMITS_SECONDS)
            limits = limits_of(node.values)
            if limits.total is not None or self._last.total is None:
                self._last = limits
        return self._last


def release_of(settings: AgentSettings, host: str, epoch: int) -> Release:
    """What becomes of segments that are done, as the settings say."""
    if settings.on_release == "archive" and settings.archive_directory is not None:
        return archived(settings.archive_directory / host / str(epoch))
    return KEPT if settings.on_release == "keep" else DELETED


def exit_code(health: Health) -> int:
    """The exit code of a stopped agent: 4 after loss, 3 with a quarantined segment or dead letters, else 0."""
    if any(health.counts.get(kind, 0) for kind in ("lost", "unknown", "lost_parked")):
        return DataLossError.exit_code
    aside = health.counts.get("dead_letters", 0) or any(
        cause.startswith(QUARANTINED_CAUSE) for cause in health.degraded
    )
    return QUARANTINED if aside else 0
