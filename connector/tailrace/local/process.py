"""One server as a child process: started, awaited, logged, stopped, and gone when this process is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from tailrace.local import guard
from tailrace.local.ports import is_open
from tailrace_common.locks import is_locked, try_lock
from tailrace_schemas.errors import ServiceError

_POLL_SECONDS = 0.05
_QUOTED_LINES = 15
_RELEASE_SECONDS = 30.0

# The one thread that starts children. The kernel sends the death signal when the *thread* that forked ends, so it has
# to be one that lives as long as this process.
_SPAWNER = ThreadPoolExecutor(1, thread_name_prefix="spawner")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to run and how to tell that it is ready: `ready_line` stands in the log and the port accepts.

    `directory` is the child's working directory; its log (`<name>.log`, appended to) and its lock are there.
    """

    name: str
    command: tuple[str, ...]
    directory: Path
    address: str
    port: int
    ready_line: str
    start_seconds: float = 120.0
    stop_seconds: float = 30.0

    @property
    def log(self) -> Path:
        """Where the child's standard output and error go."""
        return self.directory / f"{self.name}.log"


class Running(Protocol):
    """A server that was started, wherever it runs."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    @property
    def running(self) -> bool:
        """Whether it is still there."""
        ...

    def await_ready(self) -> None:
        """Return when it is ready, or raise ServiceError that quotes its log and leave nothing running."""
        ...

    def stop(self) -> None:
        """End it in order, by force when that takes too long. Does nothing when it is gone."""
        ...

    def kill(self) -> None:
        """End it as a crash would; returns when it is gone."""
        ...


class Child:
    """A server that runs until `stop` or `kill`, or until this process dies, which the kernel tells it by SIGTERM."""

    def __init__(self, launch: Launch, process: subprocess.Popen[bytes], log_offset: int) -> None:
        self.launch = launch
        self._process = process
        self._log_offset = log_offset

    @classmethod
    def start(cls, launch: Launch) -> Child:
        """Run it. One server at a time per directory: waits for one that is ending, raises ServiceError if it stays."""
        with directory_lock(launch.directory, launch.name) as lock, launch.log.open("ab") as log:
            offset = log.seek(0, os.SEEK_END)
            process = _SPAWNER.submit(_spawn, launch, log, lock).result()
        return cls(launch, process, offset)

    @property
    def pid(self) -> int:
        """The server's own process id; the guard has become the server."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is still there."""
        return self._process.poll() is None

    def stop(self) -> None:
        """SIGTERM, then SIGKILL when it is not gone after `stop_seconds`. Does nothing when it is gone.

        What it started has as long to follow it, as Spark's Java does with its Python: nobody writes to the directory
        after.
        """
        if not self.running:
            return
        self._process.terminate()
        try:
            self._process.wait(self.launch.stop_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
        if not wait_until(self._alone, self.launch.stop_seconds):
            self._kill_group()

    def kill(self) -> None:
        """SIGKILL: neither the server nor what it started can write anything more. Returns when they are gone."""
        if self.running:
            self._kill_group()
        self._process.wait()

    def _alone(self) -> bool:
        """Whether nothing is left of its process group, which is its own."""
        return not any(_runs_in_group(stat, self.pid) for stat in Path("/proc").glob("[0-9]*/stat"))

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        wait_until(self._alone, _RELEASE_SECONDS)

    def await_ready(self) -> None:
        """Return when it is ready. Another thread may end it meanwhile.

        Raises ServiceError that quotes the log when it ends or takes longer than `start_seconds`. Whatever is raised,
        nothing is left running then.
        """
        try:
            self._poll_ready()
        except BaseException:
            self.kill()
            raise

    def _poll_ready(self) -> None:
        launch = self.launch
        deadline = time.monotonic() + launch.start_seconds
        while not (self._logged(launch.ready_line) and is_open(launch.address, launch.port)):
            code = self._process.poll()
            if code is not None:
                raise start_failure(launch, f"ended at its start with {_describe(code)}")
            if time.monotonic() > deadline:
                raise start_failure(launch, f"was not ready after {launch.start_seconds:.0f} s")
            time.sleep(_POLL_SECONDS)

    def _logged(self, line: str) -> bool:
        with self.launch.log.open("rb") as log:
            log.seek(self._log_offset)
            return line.encode() in log.read()


def start_failure(launch: Launch, problem: str) -> ServiceError:
    """The error for a server that does not come up: names the log and quotes its end."""
    return ServiceError(f"{launch.name} {problem}. Its log is {launch.log}, which ends:\n{tail(launch.log)}")


def run_to_end(name: str, command: tuple[str, ...], directory: Path, seconds: float = 60.0) -> str:
    """Run a tool to its end and return what it printed. Raises ServiceError that quotes it when it fails."""
    log = directory / f"{name}.log"
    with log.open("wb") as output:
        process: subprocess.Popen[bytes] = _SPAWNER.submit(_spawn_in, command, directory, output, ()).result()
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired as error:
        process.kill()
        process.wait()
        raise ServiceError(f"{name} took longer than {seconds:.0f} s; its log is {log}") from error
    except BaseException:
        process.kill()
        process.wait()
        raise
    if code != 0:
        raise ServiceError(f"{name} ended with {_describe(code)}. Its log is {log}, which ends:\n{tail(log)}")
    return log.read_text("utf-8", "replace")


def tail(log: Path, lines: int = _QUOTED_LINES) -> str:
    """The last lines of a log, each indented by two blanks."""
    last = log.read_text("utf-8", "replace").splitlines()[-lines:]
    return "\n".join(f"  {line}" for line in last)


def directory_lock(directory: Path, name: str, seconds: float = _RELEASE_SECONDS) -> BinaryIO:
    """Take `<directory>/<name>.lock`. Whoever has the open file holds it, children that inherited it included.

    Waits up to `seconds` for a holder that is about to end. Raises ServiceError when it does not.
    """
    directory.mkdir(parents=True, exist_ok=True)
    lock = (directory / f"{name}.lock").open("ab")
    if not wait_until(lambda: try_lock(lock.fileno()), seconds):
        lock.close()
        raise ServiceError(f"{name} still runs in {directory}: stop it first, or use another directory")
    return lock


def is_held(directory: Path, name: str) -> bool:
    """Whether somebody holds `<directory>/<name>.lock`."""
    with suppress(FileNotFoundError):
        return is_locked(directory / f"{name}.lock")
    return False


def wait_until(condition: Callable[[], bool], seconds: float, every: float = _POLL_SECONDS) -> bool:
    """Ask until it holds or the time is over; the last answer. `every` is the pause in seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True


def _spawn(launch: Launch, log: BinaryIO, lock: BinaryIO) -> subprocess.Popen[bytes]:
    return _spawn_in(launch.command, launch.directory, log, (lock.fileno(),))


def _spawn_in(
    command: tuple[str, ...], directory: Path, log: BinaryIO, inherited: tuple[int, ...]
) -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C in the terminal reaches this process only, which then stops its children in order.
    return subprocess.Popen(  # noqa: S603 - programs of the lock file and of find_java, no shell
        [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), *command],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=inherited,
    )


def _runs_in_group(stat: Path, group: int) -> bool:
    """Whether /proc/PID/stat is that of a process of the group; a zombie that nobody has waited for is none."""
    try:
        state, _parent, its_group = stat.read_text("utf-8", "replace").rpartition(")")[2].split()[:3]
    except OSError:  # it ended meanwhile
        return False
    return int(its_group) == group and state != "Z"


def _describe(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
