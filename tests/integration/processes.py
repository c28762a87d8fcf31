"""A command of tailrace's as a process of its own: what tests of the agent and of the stream do with it alike."""

from __future__ import annotations

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.support.waiting import text_of, until

_ROOT: Final = Path(__file__).parents[2]
PROGRAM = ("-c", "from tailrace.cli.main import run; run()")
"""What Python is told to run as `tailrace`."""


def environment(program: tuple[str, ...]) -> dict[str, str]:
    """That of a process. A program of the tests, which is a file, imports others of them."""
    if not program[0].endswith(".py"):
        return dict(os.environ)
    paths = [*os.environ.get("PYTHONPATH", "").split(os.pathsep), str(_ROOT)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


class CommandProcess(ABC):
    """One process at a time, and its log. Killed at the exit of a `with`, where it still runs."""

    patience = 60.0
    """Seconds in which something is expected of it."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def start(self) -> Self:
        """Start it, again after its end too."""

    @abstractmethod
    def kill(self) -> None:
        """kill -9."""

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process as it was last started."""
        assert self._process is not None
        return self._process

    def until(self, condition: Callable[[], bool], seconds: float | None = None) -> None:
        """Wait for the condition; fails with the log when it does not come, or the process ends first."""
        patience = self.patience if seconds is None else seconds
        until(condition, text_of(condition), patience, over=self._has_ended, state=self._state)

    def _has_ended(self) -> bool:
        return self.process.poll() is not None

    def _state(self) -> str:
        return f"exit code {self.process.poll()}\n{self.words()}"

    @property
    def most_memory(self) -> int:
        """The most that it has had, in MiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        [line] = [line for line in status if line.startswith("VmHWM")]
        return int(line.split()[1]) // 1024

    def words(self) -> str:
        """The end of its log."""
        return self.log.read_text()[-6000:]

    def stop(self) -> int:
        """SIGTERM, and its exit code."""
        self.process.terminate()
        return self.ended(60)

    def ended(self, seconds: float | None = None) -> int:
        """Its exit code once it has ended by itself."""
        patience = self.patience if seconds is None else seconds
        until(self._has_ended, f"the end of {self.log.stem}", patience, state=self.words)
        return int(self.process.returncode)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()
