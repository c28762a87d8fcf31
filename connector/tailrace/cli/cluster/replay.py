"""`tailrace replay`: kept segments decoded again, and their changes put into Kafka once more, or into a file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from tailrace.assembly.replay_targets import kafka_outlet, lines_outlet, origins_of
from tailrace.cli.support.options import (
    DAMAGED,
    Key,
    Keystore,
    PasswordFile,
    Since,
    Until,
    existing_file,
    stretch_of,
    time_of,
)
from tailrace.commitlog.blocks import Keys
from tailrace.replay import Bounds, KafkaOutlet, Outlet, Replayed, replay
from tailrace.retention.spool import size_of
from tailrace.segments.files import SegmentFiles, list_segments
from tailrace.segments.keys import keys_of, keys_of_settings
from tailrace_common.cli.console import say
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_common.cli.signals import stopped_by_signals
from tailrace_common.settings import Settings
from tailrace_schemas.errors import ServiceError, SettingsError

_TIME: Final = "TIME"

Told = Callable[[SegmentFiles, int], None]


def replay_(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", exists=True, file_okay=False, help="A directory with segments or copies of them."
        ),
    ],
    config: SettingsFile = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="FILE", help="Write JSON lines to a new file instead of Kafka; - is stdout."),
    ] = None,
    schema: Annotated[
        Path | None,
        existing_file("Definitions: rows of system_schema as JSON lines, gzip or not. Without it, the cluster's."),
    ] = None,
    present: Annotated[
        bool,
        typer.Option("--present-schema", help="Use the present definitions even if Kafka has those of the time."),
    ] = False,
    table: Annotated[
        list[str] | None,
        typer.Option(metavar="KEYSPACE.TABLE", help="Only changes of this table, or of KEYSPACE.*; repeatable."),
    ] = None,
    since: Since = None,
    until: Until = None,
    written_since: Annotated[
        str | None, typer.Option(metavar=_TIME, help="Only changes with this write time or a later one.")
    ] = None,
    written_until: Annotated[
        str | None, typer.Option(metavar=_TIME, help="Only changes with a write time before this.")
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="The host of the segments. Default: the node of the settings.", show_default=False
        ),
    ] = None,
    epoch: Annotated[int, typer.Option(min=1, metavar="N", help="The log epoch of the segments.")] = 1,
    key: Key = None,
    keystore: Keystore = None,
    keystore_password_file: PasswordFile = None,
) -> None:
    """Publish the changes of kept segments again, with origin = replay, or print them.

    Tables: those with cdc = true, or those of --table. For Kafka, definitions are those of the time, as far as
    .schema-history has them for this host. For a file, and with --schema, they are the present ones. Digests are equal
    to the first ones, so merging sinks reach the same state. Publishing is transactional, and the agent's position
    stays. A TIME is ISO 8601 (UTC without a zone) or microseconds. Where an index is kept, only its released part is
    read. Exit code 3 when mutations were left out or a segment is damaged.

    Example: tailrace replay /backup/cdc_raw --table shop.orders --written-since 2026-11-01T00:00:00Z
    """
    settings = settings_of(config)
    stretch = stretch_of(since, until)
    bounds = Bounds(
        since=stretch.since,
        until=stretch.until,
        earliest=time_of("--written-since", written_since),
        latest=time_of("--written-until", written_until),
    )
    if bounds.earliest is not None and bounds.latest is not None and bounds.earliest >= bounds.latest:
        raise SettingsError(f"no write time is at or after {written_since} and before {written_until}")
    if schema is not None and to is None and host is None:
        raise SettingsError("--schema: the cluster is not asked then whose segments these are: give --host too")
    segments = _segments(directory)
    keys = _keys(settings, key, keystore, keystore_password_file)
    origins = origins_of(settings, schema, host)
    replayed, bar = Replayed(), sys.stderr.isatty()
    with stopped_by_signals():
        if to is not None:
            with lines_outlet(to, origins, table, bounds) as lines:
                _run(segments, lines, bounds, replayed, epoch, keys, bar=bar and str(to) != "-")
        else:
            say(f"replaying as host {origins.host}, log epoch {epoch}")
            present = present or schema is not None
            with kafka_outlet(settings, origins, table, bounds, present=present) as kafka, _told_where(kafka):
                _run(segments, kafka, bounds, replayed, epoch, keys, bar=bar)
    _tell(replayed)


def _segments(directory: Path) -> tuple[SegmentFiles, ...]:
    try:
        segments = tuple(files for files in list_segments(directory).segments if files.log is not None)
    except OSError as error:
        raise SettingsError(f"{directory}: cannot be listed: {error.strerror}") from None
    if not segments:
        raise SettingsError(f"{directory}: no CommitLog-*.log is in it")
    return segments


def _keys(settings: Settings, key: str | None, keystore: Path | None, password_file: Path | None) -> Keys:
    """Those of the options, else the agent's."""
    if key is None and keystore is None:
        return keys_of_settings(settings.agent)
    return keys_of(key, keystore, password_file)


def _run(
    segments: Sequence[SegmentFiles],
    outlet: Outlet,
    bounds: Bounds,
    replayed: Replayed,
    epoch: int,
    keys: Keys,
    *,
    bar: bool,
) -> None:
    try:
        with _progress(segments, bar) as progress:
            replay(segments, outlet, bounds, replayed, epoch=epoch, keys=keys, progress=progress)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ServiceError(f"cannot read {error.filename or 'a segment'}: {error.strerror}") from error


@contextmanager
def _progress(segments: Sequence[SegmentFiles], on_terminal: bool) -> Iterator[Told]:
    """What shows on a terminal how many bytes of all segments are done."""
    if not on_terminal:
        yield lambda _files, _offset: None
        return
    bytes_before, total = {}, 0
    for files in segments:
        bytes_before[files.id] = total
        total += size_of(files)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("replaying", total=total)
        # Positions of compressed segments run ahead of the file.
        yield lambda files, offset: bar.update(task, completed=bytes_before[files.id] + min(offset, size_of(files)))


@contextmanager
def _told_where(outlet: KafkaOutlet) -> Iterator[None]:
    """When it ends early, say from where to go on."""
    try:
        yield
    except (ServiceError, KeyboardInterrupt):
        position = outlet.committed
        advice = f"; go on with --since {position.segment}:{position.offset}" if position is not None else ""
        say(f"ended early: {'nothing is replayed' if position is None else f'replayed up to {position}'}{advice}")
        raise


def _tell(replayed: Replayed) -> None:
    for words in replayed.damaged:
        say(words)
    for reason, (position, count) in replayed.left_out.items():
        say(f"{position}: {reason}; {count} mutation{'s' * (count > 1)} left out")
    counts = ((replayed.changes, "change"), (replayed.mutations, "mutation"), (replayed.segments, "segment"))
    changes, mutations, segments = (f"{amount} {noun}{'s' * (amount != 1)}" for amount, noun in counts)
    say(f"{changes} of {mutations} in {segments} replayed")
    if replayed.damaged or replayed.left_out:
        raise typer.Exit(DAMAGED)
