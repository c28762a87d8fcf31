"""The life of a local server: start, stop, kill, restart, whatever it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

from tailrace.local.process import Child, Launch, Running, tail
from tailrace_schemas.errors import ServiceError


class LocalService(ABC):
    """A server below a directory of its own, which it keeps over stops and starts: data, configuration, log, ports.

    A context manager: started on entry, stopped on exit. `stop` and `kill` from another thread end a start, too.
    """

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory.absolute()
        self._process: Running | None = None

    @abstractmethod
    def _prepare(self) -> Launch:
        """Fetch what is needed, settle the ports, write the configuration."""

    def _run(self, launch: Launch) -> Running:
        return Child.start(launch)

    def start(self) -> Self:
        """Start it and wait until clients may connect. Raises ServiceError, with the end of the log, when it fails."""
        if self.running:
            raise ServiceError(f"{self.name} runs already in {self.directory}")
        self.directory.mkdir(parents=True, exist_ok=True)
        self._process = self._run(self._prepare())
        self._process.await_ready()
        return self

    def stop(self) -> None:
        """End it in order (SIGTERM), by force after a while; its directory stays."""
        if self._process is not None:
            self._process.stop()

    def kill(self) -> None:
        """End it as a crash would (SIGKILL)."""
        if self._process is not None:
            self._process.kill()

    def restart(self) -> Self:
        """Stop it if it runs, and start it on the same data and, where still free, the same ports."""
        self.stop()
        return self.start()

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.running

    def require_running(self) -> None:
        """Raise ServiceError, with the end of its log, where it has ended by itself."""
        if not self.running:
            raise ServiceError(f"{self.name} ended by itself. Its log is {self.log}, which ends:\n{tail(self.log)}")

    @property
    def pid(self) -> int:
        """The process id of the last start. Raises ServiceError before the first."""
        if self._process is None:
            raise ServiceError(f"{self.name} in {self.directory} was not started")
        return self._process.pid

    @property
    def log(self) -> Path:
        """The server's log; every start appends to it."""
        return self.directory / f"{self.name}.log"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
