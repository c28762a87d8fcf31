"""`tailrace offsets`: how far each host's agent has published; moving that by hand, restoring a deleted record."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tailrace.assembly.node import GRANT, read_node_settings, require_own_directory
from tailrace.capture.recovery import is_commitlog_of
from tailrace.cli.support.options import existing_directory
from tailrace.cli.support.records import (
    Fence,
    Host,
    between,
    change_record,
    chosen_host,
    known_hosts,
    known_progress,
    lost_records,
    lost_words,
    present,
    publisher_of,
    require_boundary,
    require_stopped,
    spool_of,
)
from tailrace.cluster import LiveCluster
from tailrace.errors import AgentRunsError
from tailrace.publish.hosts import HostRecord, adopted, host_of, move_words, moved, position_words, restored, target_of
from tailrace.segments.keys import keys_of_settings
from tailrace.state import Resume, SegmentKey
from tailrace_common.cli.console import on_terminal, print_json, print_rows, say
from tailrace_common.cli.options import SettingsFile, Yes, confirm, settings_of
from tailrace_common.durations import duration_words
from tailrace_common.settings import Settings
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.position import Position
from tailrace_schemas.progress import Progress

app = typer.Typer(
    no_args_is_help=True,
    help="Show or change each agent's committed position.\n\nExample: tailrace offsets show",
)


@app.command()
def show(
    config: SettingsFile = None,
    host: Annotated[str | None, typer.Option("--host", metavar="ID", help="Only this host.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON lines on a terminal, too.")] = False,
) -> None:
    """List each host's committed position, known and quarantined segments, and the record's age.

    A position is log epoch, segment and offset, after the last published mutation. Known segments were read or skipped
    up to there: those in cdc_raw, and released ones that the node may link into it again.

    Example: tailrace offsets show -c tailrace.toml
    """
    settings = settings_of(config)
    lost = [progress for progress in lost_records(settings) if host in (None, progress.host)]
    for progress in lost:
        say(lost_words(settings, progress))
    hosts = known_hosts(settings)
    if host is not None:
        hosts = () if lost else (host_of(hosts, host),)
    show_hosts(hosts, time.time(), json=json)
    if not hosts and not lost:
        say("no agent has committed a position under this prefix yet")


def show_hosts(hosts: Sequence[HostRecord], now: float, *, json: bool = False) -> None:
    """Print what `show` does of these; `now` in seconds since the epoch."""
    if on_terminal() and not json:
        headings = {"host": "host id", "position": "published up to", "age": "committed ago"}
        print_rows((_short(host_record, now) for host_record in hosts), headings=headings)
        for host_record in hosts:
            _tell_quarantined(host_record)
    else:
        for host_record in hosts:
            print_json(_row(host_record, now))


@app.command("set")
def set_(
    position: Annotated[
        str,
        typer.Argument(
            metavar="[EPOCH/]SEGMENT[:OFFSET]", help="Publishing resumes after this position.", show_default=False
        ),
    ],
    config: SettingsFile = None,
    host: Host = None,
    directory: Annotated[
        Path | None,
        existing_directory(
            "The host's cdc_raw. Without it, agent.cdc_raw_directory, where the settings' node is that host."
        ),
    ] = None,
    fence: Fence = False,
    yes: Yes = False,
) -> None:
    """Move a host's position back (changes are published twice) or forward (changes are never published).

    Stop the host's agent first: the command refuses while it seems to run, and fences it in Kafka. On the node it
    counts the mutations in between; forward moves are possible only there. A segment without offset means its
    beginning. Quarantined parts after the position are read again.

    Example: tailrace offsets set 1795246977430:560288 --host 2f1c... --yes
    """
    settings = settings_of(config)
    record, resume = chosen_host(settings, host)
    current = resume.position
    if current is None:
        raise SettingsError(f"host {record.host} has no position yet: its agent starts at the first segment")
    target = target_of(position, current)
    files, spool = directory or _own_directory(settings, record.host), spool_of(settings, record.host, current.epoch)
    target_record = checked_move(settings, resume, current, target, files, spool)
    counted = None if files is None else between(files, current, target, keys_of_settings(settings.agent), spool)
    say(move_words(record.host, current, target, counted))
    if target_record == resume:
        return
    change_record(settings, record, target_record, "Move it?", fence=fence, yes=yes, directory=directory)
    say(f"host {record.host}: its agent goes on behind {target}")


@app.command()
def adopt(
    new_log: Annotated[
        bool, typer.Option("--new-log", help="Confirm that the node has a new commit log.", show_default=False)
    ] = False,
    config: SettingsFile = None,
    host: Host = None,
    fence: Fence = False,
    yes: Yes = False,
) -> None:
    """Open the next log epoch of a host with a new commit log, so that its agent starts again.

    For a node that returned with another disk, or took over a dead node's host id. Its agent stops at a segment below
    its position that it never read. After this command it publishes all of cdc_raw. Unpublished changes of the old log
    are lost.

    Example: tailrace offsets adopt --new-log --host 2f1c...
    """
    if not new_log:
        raise SettingsError("offsets adopt: give --new-log, if the node's commit log is another one than before")
    settings = settings_of(config)
    record, resume = chosen_host(settings, host)
    adopted_record = adopted(resume)
    say(
        f"host {record.host} goes from {position_words(resume.position)} to log epoch {_epoch(adopted_record)}: "
        "everything in its cdc_raw is published from the beginning. Segments of the old log that still lie there are "
        "published a second time: move them away before"
    )
    if resume.quarantined:
        say(f"{len(resume.quarantined)} quarantined places of the old log are forgotten: {_places(resume)}")
    change_record(settings, record, adopted_record, "Open it?", fence=fence, yes=yes)
    say(f"host {record.host} is in log epoch {_epoch(adopted_record)}: start its agent")


def _own_directory(settings: Settings, host: str) -> Path | None:
    """The settings' cdc_raw where it is that host's, as the node itself says; None where it is not, or not known."""
    directory = settings.agent.cdc_raw_directory
    try:
        with closing(LiveCluster(settings.cluster)) as cluster:
            node = cluster.local()
            if node.host != host:
                return None
            node_settings = read_node_settings(cluster, node.release)
            if node_settings.refusal:
                say(f"whether {directory} is the node's own is not certain: {GRANT}. {node_settings.refusal}")
            require_own_directory(directory, node_settings.values)
            return directory
    except (ServiceError, SettingsError) as error:
        say(f"{directory} is not looked at: {error}")
        return None


def checked_move(
    settings: Settings, resume: Resume, before: Position, target: Position, files: Path | None, spool: Path
) -> Resume:
    """The record after the move. Raises SettingsError for a move that the files forbid, or that needs them."""
    if files is None:
        if target > before:
            raise SettingsError(
                f"{target} is ahead of {before}: what is passed over must be noted segment by segment. Run this on "
                "the node itself, or give its cdc_raw with --directory"
            )
        return moved(resume, target, ())
    segments = present(files, spool)
    if target > before and target.segment > max((segment for segment, _ in segments), default=-1):
        raise SettingsError(f"{target} is behind everything in {files}: no segment may be passed over before it exists")
    require_boundary(files, target, keys_of_settings(settings.agent), spool)
    return moved(resume, target, segments)


def _epoch(resume: Resume) -> int:
    return 0 if resume.position is None else resume.position.epoch


def _places(resume: Resume) -> str:
    return ", ".join(f"{quarantined.segment}:{quarantined.offset}" for quarantined in resume.quarantined)


def _row(record: HostRecord, now: float) -> dict[str, object]:
    """Everything, for programs."""
    resume = record.resume or Resume()
    position = resume.position
    return {
        "cluster": record.cluster,
        "host": record.host,
        "position": None if position is None else asdict(position),
        "known_segments": [{"segment": segment, "checksum": checksum} for segment, checksum in resume.open],
        "quarantined": [asdict(quarantined) for quarantined in resume.quarantined],
        "committed": datetime.fromtimestamp(record.committed / 1000, UTC).isoformat(timespec="milliseconds"),
        "age_seconds": round(record.age(now), 3),
        **({"problem": record.problem} if record.problem else {}),
    }


def _short(record: HostRecord, now: float) -> dict[str, object]:
    """What fits a terminal."""
    resume = record.resume
    return {
        "cluster": record.cluster,
        "host": record.host,
        "position": record.problem if resume is None else position_words(resume.position),
        "known segments": None if resume is None else len(resume.open),
        "quarantined": None if resume is None else len(resume.quarantined),
        "age": duration_words(record.age(now)),
    }


def _tell_quarantined(record: HostRecord) -> None:
    for damaged in () if record.resume is None else record.resume.quarantined:
        say(f"{record.host}: segment {damaged.segment} is read up to {damaged.offset} only: {damaged.reason}")


@app.command()
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
    with closing(LiveCluster(settings.cluster)) as cluster:
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
        restored_record = restored(position, (*files.logged, *files.spooled, *files.raw), set_aside(files, progress))
        say(restored_words(progress, position, restored_record))
        confirm("Write it?", yes)
        publisher.commit(restored_record)
    say(f"host {progress.host}: its agent goes on behind {position}")


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """What a node has of segments: `raw` in cdc_raw, `spooled` in the spool, `logged` in the commit log."""

    raw: tuple[SegmentKey, ...]
    spooled: tuple[SegmentKey, ...]
    logged: tuple[SegmentKey, ...]


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
    spool = spool_of(settings, progress.host, progress.position.epoch)
    if not is_commitlog_of(logged, raw):
        say(
            f"{logged}, agent.commitlog_directory, does not look like the node's commit log. Segments that Cassandra "
            "puts into cdc_raw once more after a crash may be taken for another log's"
        )
        logged = raw
    return NodeFiles(present(raw), present(spool) if spool.is_dir() else (), present(logged))


def set_aside(files: NodeFiles, progress: Progress) -> tuple[SegmentKey, ...]:
    """Segments that may have what was parked, or is damaged."""
    return (*files.spooled, *files.raw) if progress.parked or progress.quarantined else ()


def restored_words(progress: Progress, position: Position, after: Resume) -> str:
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
