"""How far a snapshot is, while it runs: a bar on a terminal, else a JSON line every few seconds."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tailrace_common.cli.console import print_json
from tailrace_common.closing import beside
from tailrace_schemas.errors import ServiceError
from tailrace_spark.snapshot.publication import Publication, Totals, totals_of

log = logging.getLogger("tailrace_spark")
_LOOK_SECONDS: Final = 1.0
_LINE_SECONDS: Final = 10.0

Show = Callable[[Totals, float], None]
"""Shows how far it is, so many seconds after the command began."""


@contextmanager
def shown(publication: Publication, *, before: Totals) -> Iterator[None]:
    """While inside, how far the snapshot is is shown; `before` is what was out when the command began."""
    with (
        _bar() if sys.stderr.isatty() else _lines(publication.record.id, before) as show,
        beside(partial(_watch, publication, show), "snapshot progress"),
    ):
        yield


def line_of(snapshot: str, totals: Totals, before: Totals, seconds: float) -> dict[str, object]:
    """How far it is as a JSON line has it; what was out `before` does not count for the rate."""
    rate = (totals.changes - before.changes) / seconds if seconds > 0 else 0.0
    finished = totals.done - before.done
    return {
        "snapshot": snapshot,
        "ranges": totals.ranges,
        "done": totals.done,
        "changes": totals.changes,
        "bytes": totals.octets,
        "changes_per_second": round(rate, 1),
        "seconds_left": round((totals.ranges - totals.done) * seconds / finished) if finished else None,
    }


def _watch(publication: Publication, show: Show, stop: threading.Event) -> None:
    began = time.monotonic()
    with closing(publication.records(publication.record.id)) as records:
        while not stop.wait(_LOOK_SECONDS):
            try:
                records.read()
            except ServiceError as error:
                log.debug("how far the snapshot is cannot be read: %s", error)
                continue
            show(totals_of(publication.record, records), time.monotonic() - began)


@contextmanager
def _lines(snapshot: str, before: Totals) -> Iterator[Show]:
    last = -_LINE_SECONDS

    def show(totals: Totals, seconds: float) -> None:
        nonlocal last
        if seconds - last >= _LINE_SECONDS:
            last = seconds
            print_json(line_of(snapshot, totals, before, seconds))

    yield show


@contextmanager
def _bar() -> Iterator[Show]:
    columns = (
        TextColumn("ranges"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=None)

        def show(totals: Totals, seconds: float) -> None:
            del seconds
            words = f"{totals.changes} changes, {totals.octets / 1e6:.1f} MB"
            progress.update(bar, total=totals.ranges, completed=totals.done, description=words)

        yield show
