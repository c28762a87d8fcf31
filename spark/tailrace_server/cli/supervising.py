"""API and worker as processes of their own, so that no request holds up a lease; and neither outlives the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Final

from tailrace_schemas.errors import ServiceError

NOTHING_TO_DO: Final = os.EX_TEMPFAIL
"""How a process ends without which the others go on."""
_SUPERVISOR: Final = "TAILRACE_SUPERVISOR"
_LOOK_SECONDS: Final = 0.5


def supervise(roles: Sequence[str], stop: threading.Event) -> None:
    """Run this command once more for each role, until it is told to stop; all have ended then.

    Raises ServiceError where one has ended by itself, or not in order.
    """
    environment = {**os.environ, _SUPERVISOR: str(os.getpid())}
    running = {
        role: subprocess.Popen([*sys.orig_argv, "--role", role], env=environment)  # noqa: S603 - this command, no shell
        for role in roles
    }
    faults: list[str] = []
    while running:
        is_over = bool(faults) or stop.wait(_LOOK_SECONDS)
        in_order = (0, NOTHING_TO_DO, -signal.SIGTERM) if is_over else (NOTHING_TO_DO,)
        for role, process in list(running.items()):
            if is_over:
                process.terminate()
                process.wait()
            if (code := process.poll()) is not None:
                del running[role]
                if code not in in_order:
                    faults.append(f"the process of the {role} has ended (exit code {code})")
    if faults:
        raise ServiceError(f"{', and '.join(faults)}; this server ends with it. Its log has the reason")


def is_supervised() -> bool:
    """Whether this process is one of several of a server."""
    return _SUPERVISOR in os.environ


def end_with_supervisor(stop: threading.Event) -> None:
    """Stop when whoever has started this process is gone, as by kill -9."""

    def watch() -> None:
        while os.getppid() == int(os.environ[_SUPERVISOR]) and not stop.wait(_LOOK_SECONDS):
            pass
        stop.set()

    threading.Thread(target=watch, name="supervisor", daemon=True).start()
