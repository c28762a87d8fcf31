"""Jars are fetched ahead of what needs them, so that a person sees how far it is."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from tailrace_common.java.jars import fetch_sets


def fetch_with_progress(*sets: str) -> None:
    """Fetch the jars of these sets; on a terminal a bar shows how far it is. Raises JarError or SettingsError."""
    if not sys.stderr.isatty():
        fetch_sets(*sets)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"fetching {', '.join(sets)}")
        fetch_sets(*sets, progress=lambda done, total: bar.update(task, completed=done, total=total))
