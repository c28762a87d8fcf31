"""Servers that end with the process that started them, however that ends: kill -9 runs no `atexit`.

Run as a program this waits for the end of its input, which the process holds, and then ends the server.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_WATCHERS: list[subprocess.Popen[bytes]] = []
"""Their inputs are open for as long as this process lives."""


def tie(server: int, end: signal.Signals = signal.SIGKILL, directory: Path | None = None) -> None:
    """Have a process end with this one, by a signal, and its directory go with it."""
    if sys.platform == "linux":
        arguments = [str(server), str(int(end)), "" if directory is None else str(directory)]
        command = [sys.executable, "-I", "-S", __file__, *arguments]
        # A session of its own: Ctrl-C is not for it. Nobody waits for the end of its output.
        watcher = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
        _WATCHERS.append(watcher)


def _watch(server: int, end: int, directory: str) -> None:
    try:
        process = os.pidfd_open(server)  # another one of its number, later on, is not it
    except ProcessLookupError:
        return
    sys.stdin.buffer.read()
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(process, end)
    select.select([process], [], [])
    if directory:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    _watch(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
