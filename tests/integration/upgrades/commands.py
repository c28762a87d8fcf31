"""Commands of the last version. This version's would bring the meta database up to date before its time."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.integration.server.servers import Site


def subscribe(site: Site, program: tuple[str, ...], table: str, name: str, *words: str) -> None:
    """`tailrace subscribe`; `program` is what Python is told to run as `tailrace`."""
    command = [sys.executable, *program, "subscribe", table, "--name", name, *words, "-c", str(site.config)]
    answer = subprocess.run(
        command, cwd=site.directory, env=dict(os.environ), capture_output=True, text=True, timeout=600, check=False
    )
    assert answer.returncode == 0, answer.stderr
