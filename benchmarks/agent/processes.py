"""A measured program as a process: what it has used so far, and its end."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from benchmarks.agent.figures import cpu_seconds, most_memory_mb

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_STOP_SECONDS: Final = 20.0


class Measured:
    """A running program. A context manager: it has ended on exit."""

    def __init__(self, command: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None) -> None:
        self.log = directory / "output.log"
        self.began = time.monotonic()
        self.began_at = time.time()
        """The same, by the clock on the wall."""
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                command, cwd=directory, stdout=output, stderr=subprocess.STDOUT, env=environment
            )

    @property
    def seconds(self) -> float:
        """Since its start."""
        return time.monotonic() - self.began

    @property
    def cpu(self) -> float:
        """CPU seconds so far, of all its threads."""
        return cpu_of(self._process.pid)

    @property
    def memory_mb(self) -> float:
        """The most memory that it had so far."""
        return memory_mb_of(self._process.pid)

    def require_running(self) -> None:
        """Raise RuntimeError, with the end of what it said, if it has ended."""
        if self._process.poll() is not None:
            raise RuntimeError(
                f"ended with {self._process.returncode}: {self.log.read_text('utf-8', 'replace')[-4000:]}"
            )

    def at_rest(self, most_seconds: float = 60) -> float:
        """Wait until it has nothing to do for some seconds; its CPU seconds by then."""
        until, quiet, before = time.monotonic() + most_seconds, 0, self.cpu
        while quiet < 3 and time.monotonic() < until:
            time.sleep(1)  # the time between two samples
            now = self.cpu
            quiet, before = quiet + 1 if now - before < 0.1 else 0, now
        return before

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def memory_mb_of(pid: int | str = "self") -> float:
    """The most memory that a process had so far, since its program began: getrusage begins with its parent's."""
    return most_memory_mb(Path(f"/proc/{pid}/status").read_text("utf-8"))


def cpu_of(pid: int) -> float:
    """CPU seconds of a process so far."""
    return cpu_seconds(Path(f"/proc/{pid}/stat").read_text("utf-8", "replace"), _TICKS)
