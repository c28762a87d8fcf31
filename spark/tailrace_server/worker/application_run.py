"""A subscription in a Spark application of its own, as its worker sees it: a process that it starts and watches.

The worker has the lease, renews it, and says what becomes of the subscription, as for a run of its own. The process
runs the claim and keeps its progress. It ends when the pipe to it ends. The worker closes the pipe to stop it, and the
kernel does so when the worker is gone.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Final

from tailrace_schemas.errors import TailraceError
from tailrace_server.meta.leases import Claim
from tailrace_server.model.errors import LostLeaseError
from tailrace_server.worker.failures import Failure
from tailrace_server.worker.messages import Order, Status

log = logging.getLogger("tailrace_server")

# -P: Python looks for modules neither in the working directory nor beside the program.
COMMAND: Final = (sys.executable, "-P", "-m", "tailrace_server.worker.application")
# Where spark-submit started the worker, they lead PySpark to the worker's Java.
_OF_THE_WORKER: Final = "PYSPARK_GATEWAY_"


class ApplicationRun:
    """Runs one claim in a process of its own, as `Running` says. Nothing that happens there reaches another one."""

    def __init__(
        self,
        claim: Claim,
        order: Callable[[Claim], Order],
        renewed: Callable[[Claim], Claim],
        command: Sequence[str] = COMMAND,
    ) -> None:
        """`renewed` gives the claim another token, so that an earlier process of it keeps no progress any more.

        `order` is what the process has to run, `command` what starts it; the subscription's name follows, for people.
        """
        self._claim = claim
        self._command = command
        self._stopped = False
        self._status = Status()
        self._died: Failure | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: threading.Thread | None = None
        try:
            self._claim = renewed(claim)
            self._begin(order(self._claim))
        except (OSError, TailraceError) as error:
            self._died = Failure(f"its Spark application cannot be started: {error}", _AGAIN)
            if isinstance(error, LostLeaseError):
                log.warning("%s", error)

    def _begin(self, order: Order) -> None:
        reference = self._claim.subscription.reference
        process = subprocess.Popen(  # noqa: S603 - our own program; the name has letters, digits, "_", "-", "." and "/"
            [*self._command, reference],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(os.environ),
            start_new_session=True,  # a signal that a terminal sends is the worker's, which ends it in order
        )
        self._process = process
        log.info("%s runs in a Spark application of its own, process %d", reference, process.pid)
        with suppress(OSError):  # it has ended already, and its exit code says more
            _pipe(process.stdin).write(order.to_line())
            _pipe(process.stdin).flush()
        self._watcher = threading.Thread(target=self._watch, args=(process,), name=f"application {reference}")
        self._watcher.daemon = True
        self._watcher.start()

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Take what it says until it ends, and how it has ended."""
        with _pipe(process.stdout) as lines:
            for line in lines:
                with suppress(ValueError):  # a line that its end has cut
                    self._status = Status.from_line(line)
        code = process.wait()
        _close(process)
        if code and not self._stopped:
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            self._died = Failure(f"its Spark application ended by {how}, on {self._claim.subscription.owner}", _AGAIN)

    @property
    def claim(self) -> Claim:
        """As Running says."""
        return self._claim

    @property
    def ended(self) -> bool:
        """As Running says."""
        return self._watcher is None or not self._watcher.is_alive()

    @property
    def failure(self) -> Failure | None:
        """As Running says."""
        return self._died or self._status.failure

    @property
    def note(self) -> Failure | None:
        """As Running says."""
        return self._status.note

    @property
    def finished(self) -> str | None:
        """As Running says."""
        return self._status.finished

    @property
    def works(self) -> bool:
        """As Running says."""
        return self._status.works and not self.ended

    def stop(self) -> None:
        """As Running says."""
        if self._process is not None:
            self._stopped = True
            _close(self._process)

    def wait(self, seconds: float) -> None:
        """As Running says."""
        if self._watcher is not None:
            self._watcher.join(seconds)

    def refresh(self) -> None:
        """The process does that."""


_AGAIN: Final = "See the log of its worker. `tailrace resume` tries again at once."


def _close(process: subprocess.Popen[bytes]) -> None:
    """Let its input end, at which it ends itself."""
    with suppress(OSError):  # it has ended already
        _pipe(process.stdin).close()


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    """One of the two that `Popen` was asked for."""
    if stream is None:
        raise OSError("a process without a pipe")
    return stream


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not name.startswith(_OF_THE_WORKER)}
