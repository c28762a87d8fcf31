"""`tailrace offsets restore`: a host's deleted offsets record once more, from what else Kafka and the node have."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tailrace.assembly.node import read_node_settings, require_own_directory
from tailrace.assembly.services import contact_of
from tailrace.capture.recovery import is_commitlog_of
from tailrace.cli.support.options import Yes, confirm, existing_directory
from tailrace.cli.support.records import (
    Fence,
    Host,
    known_progress,
    lost_records,
    present,
    publisher_of,
    require_stopped,
)
from tailrace.cluster import LiveCluster
from tailrace.errors import AgentRunsError
from tailrace.publish.hosts import HostRecord
from tailrace.publish.moves import restored
from tailrace.state.resume import Resume, SegmentKey
from tailrace_common.cli.console import say
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_common.settings import Settings
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.position import Position
from tailrace_schemas.progress import Progress


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """What a node has of segments: `raw` in cdc_raw, `spooled` in the spool, `logged` in the commit log."""

    raw: tuple[SegmentKey, ...]
    spooled: tuple[SegmentKey, ...]
    logged: tuple[SegmentKey, ...]


def restore(
    config: SettingsFile = None,
    host: Host = None,
    directory: Annotated[
        Path | None, existing_directory("The host's cdc_raw. Without it, agent.cdc_raw_directory.")
    ] = None,
    fence: Fence = False,
    yes: Yes = False,
) -> None:
    """Restore a host's deleted record in `.offsets`, so that its agent resumes without repeating changes.

    Run it on the node. The position comes from `.progress`, or from the newest change of this host in its tables'
    topics. If mutations were parked or segments quarantined, the node's segments below the position are quarantined:
    which of their changes are published is unknown. DDL and truncations after the position are reported again.

    Example: tailrace offsets restore -c tailrace.toml
    """
    settings = settings_of(config)
    files = None
    with closing(LiveCluster(contact_of(settings.cluster))) as cluster:
        node = cluster.local()
        progress = lost_progress(settings, host or node.host)
        if node.host == progress.host or directory is not None:
            values = read_node_settings(cluster, node.release)
            if values.refusal:
                say(f"the node's settings cannot be read: {values.refusal}")
            raw = directory or settings.agent.cdc_raw_directory
            if directory is None:
                require_own_directory(raw, values.values)
            logged = settings.agent.commitlog_directory or Path(values.values.get("commitlog_directory", ""))
            files = files_of(settings, progress, raw, logged)
    if files is None:
        raise SettingsError(f"host {progress.host} is another node: run this there, or give its cdc_raw as --directory")
    record = HostRecord(progress.cluster, progress.host, Resume(), progress.at)
    require_stopped(settings, record, time.time(), fence=fence, directory=directory)
    with closing(publisher_of(settings, record)) as publisher:
        if publisher.start(lost=True) != Resume():
            raise AgentRunsError(f"host {progress.host} has a record again: look at it with `tailrace offsets show`")
        position = max(progress.position, publisher.newest(progress.at) or Position(0, 0, 0))
        restored_record = restored(position, (*files.logged, *files.spooled, *files.raw), aside(files, progress))
        say(words(progress, position, restored_record))
        confirm("Write it?", yes)
        publisher.commit(restored_record)
    say(f"host {progress.host}: its agent goes on behind {position}")


def lost_progress(settings: Settings, host: str) -> Progress:
    """The progress of a host whose offsets record was deleted. Raises SettingsError for other hosts."""
    lost = [progress for progress in lost_records(settings) if progress.host == host]
    if len(lost) == 1:
        return lost[0]
    if not any(progress.host == host for progress in known_progress(settings)):
        raise SettingsError(f"host {host} has no progress in Kafka: nothing is known to restore; its agent can start")
    raise SettingsError(f"host {host} has a record: `tailrace offsets show` shows it, `tailrace offsets set` moves it")


def files_of(settings: Settings, progress: Progress, raw: Path, logged: Path) -> NodeFiles:
    """The segments that the node has. Raises ServiceError."""
    spool = settings.agent.spool_directory / progress.host / str(progress.position.epoch)
    if not is_commitlog_of(logged, raw):
        say(
            f"{logged}, agent.commitlog_directory, does not look like the node's commit log. Segments that Cassandra "
            "puts into cdc_raw once more after a crash may be taken for another log's"
        )
        logged = raw
    return NodeFiles(present(raw), present(spool) if spool.is_dir() else (), present(logged))


def aside(files: NodeFiles, progress: Progress) -> tuple[SegmentKey, ...]:
    """Segments that may have what was parked, or is damaged."""
    return (*files.spooled, *files.raw) if progress.parked or progress.quarantined else ()


def words(progress: Progress, position: Position, after: Resume) -> str:
    """What the restored record means."""
    reported = progress.position
    newer = "" if position == reported else f", and its changes are published up to {position}"
    sentence = (
        f"host {progress.host}: `.progress` says {reported}{newer}. Its agent goes on behind that, and "
        f"{len(after.open)} segments count as read"
    )
    if progress.parked or progress.quarantined:
        segments = ", ".join(str(quarantined.segment) for quarantined in after.quarantined) or "none"
        sentence += (
            f". {progress.parked} mutations were parked and {progress.quarantined} segments quarantined: which, nobody "
            f"knows any more. Segments that are kept and read no more: {segments} (`tailrace replay` publishes what "
            f"they have); what was parked of segment {position.segment} is not published"
        )
    return sentence
