"""`tailrace verify`: every checksum of segment files, of whole directories, by all cores."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from tailrace.cli.support.options import DAMAGED, Key, Keystore, PasswordFile
from tailrace.commitlog.descriptor import parse_name
from tailrace.segments.files import list_segments
from tailrace.segments.keys import keys_of
from tailrace.segments.verify import FileReport, Status, reports
from tailrace_common.cli.console import on_terminal, print_json, print_rows, say
from tailrace_schemas.errors import SettingsError

_FINE: Final = frozenset({Status.OK, Status.WRITTEN, Status.GONE})


def verify(
    locations: Annotated[
        list[Path],
        typer.Argument(
            metavar="PLACE...", exists=True, readable=True, help="Directories with segments, such as cdc_raw, or files."
        ),
    ],
    jobs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of files to read at a time. Default: one per core.")
    ] = None,
    key: Key = None,
    keystore: Keystore = None,
    keystore_password_file: PasswordFile = None,
) -> None:
    """Verify every checksum of segments, and that each is complete up to its index.

    Needs no schema, decodes nothing and writes nothing. A segment that Cassandra has open may end within a frame, after
    the part that its index has released. JSON lines of all files when piped; on a terminal those with faults. Exit code
    3 when a file is damaged or could not be read.

    Example: tailrace verify /var/lib/cassandra/cdc_raw
    """
    keys = keys_of(key, keystore, keystore_password_file)
    paths = list(_segments(locations))
    with reports(paths, keys, jobs or os.cpu_count() or 1) as results:
        counts = _show(results, [_size(path) for path in paths])
    total = counts.total()
    parts = ", ".join(f"{counts[status]} {status.value}" for status in Status if counts[status]) or "nothing to verify"
    if on_terminal() or not total:
        say(f"{total} segment{'' if total == 1 else 's'}: {parts}")
    if not counts.keys() <= _FINE:
        raise typer.Exit(DAMAGED)


def _segments(locations: Iterable[Path]) -> Iterator[Path]:
    """The segments of the directories, by id, and the files as they are given. Raises SettingsError."""
    for path in locations:
        if not path.is_dir():
            yield path
            continue
        try:
            listing = list_segments(path)
        except OSError as error:
            raise SettingsError(f"{path}: cannot be listed: {error.strerror}") from None
        yield from (files.log for files in listing.segments if files.log is not None)
        # What has a segment's name and is no file gets its report too.
        yield from (path / name for name in listing.foreign if parse_name(name) is not None)


def _show(reports: Iterable[FileReport], sizes: Sequence[int]) -> Counter[Status]:
    """Print the reports as they come, on a terminal those that are not ok; how many there are of each status."""
    counts: Counter[Status] = Counter()
    rows: list[dict[str, object]] = []
    for report in _with_bar(reports, sizes) if sys.stderr.isatty() else reports:
        counts[report.status] += 1
        if not on_terminal():
            print_json(asdict(report))
        elif report.status is not Status.OK:
            rows.append({"file": report.file, "status": report.status.value, "reason": report.reason})
    print_rows(rows)
    return counts


def _with_bar(reports: Iterable[FileReport], sizes: Sequence[int]) -> Iterator[FileReport]:
    """The reports, while a bar on stderr shows how many bytes of all are done."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("verifying", total=sum(sizes))
        for report, size in zip(reports, sizes, strict=True):
            bar.advance(task, size)
            yield report


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
