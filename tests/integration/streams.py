"""`tailrace stream` as a process of its own, with the Java that Spark runs in."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tailrace.local import LocalKafka
from tailrace_common.settings import Settings
from tailrace_spark.job.progress import Progress
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.protocol import Sink
from tests.integration.processes import PROGRAM, CommandProcess, environment
from tests.services.class_archive import quick_java_lines
from tests.support.waiting import text_of, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StreamProcess(CommandProcess):
    """One `tailrace stream` into a sink, a SQL one's URL or a section; its settings, log and checkpoint are below
    `directory`.

    `stream` are more settings of its section, as TOML; unless they say so, no existing rows are copied. `program` is
    what Python is told to run as `tailrace`, `memory` that of Spark's driver, `master` Spark's, `sections` are further
    sections of the file.
    """

    patience = 240.0
    command: tuple[str, ...] = ("stream",)

    def __init__(
        self,
        directory: Path,
        kafka: LocalKafka,
        prefix: str,
        sink: str | Mapping[str, object],
        *,
        name: str = "stream",
        stream: Mapping[str, object] | None = None,
        program: tuple[str, ...] = PROGRAM,
        memory: str = "512m",
        master: str = "local[1]",
        sections: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        super().__init__(directory / f"{name}.log")
        self._directory = directory
        self._program = program
        self._config = directory / f"{name}.toml"
        more = "".join(f"{key} = {value}\n" for key, value in {"snapshot": '"never"', **(stream or {})}.items())
        self._config.write_text(
            f'[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n[topics]\nprefix = "{prefix}"\n'
            f'[stream]\ncheckpoint = "{directory}/checkpoint"\ntrigger_seconds = 0\n{more}'
            f"[sink]\nlocal = {_inline({'url': sink} if isinstance(sink, str) else sink)}\n"
            f'[stream.spark]\n"spark.master" = "{master}"\n"spark.driver.memory" = "{memory}"\n{quick_java_lines()}'
            + "".join(_section(name, section) for name, section in (sections or {}).items())
        )

    def start(self) -> Self:
        """Start it, again after its end too."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self._program, *self.command, "-c", str(self._config)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment(self._program),
                cwd=self._directory,
                start_new_session=True,
            )
        return self

    @property
    def javas(self) -> list[int]:
        """The ids of the processes that it has started for Spark's Java, none at first: not of those that tell it which
        Java this is."""
        return [pid for pid, parent in _parents() if parent == self.process.pid and _is_sparks(pid)]

    @property
    def workers(self) -> list[int]:
        """The ids of the Python processes of its tasks, and of the one that makes them."""
        parents, processes = dict(_parents()), set(self.javas)
        while more := {pid for pid, parent in parents.items() if parent in processes} - processes:
            processes |= more
        # Java has other children too, for moments: those that look a link up, or change a file's mode.
        return sorted(pid for pid in processes - set(self.javas) if _is_of_tasks(pid))

    def kill(self, *, java: bool = True, python: bool = True) -> None:
        """kill -9 of both, or of one, which the other does not outlive; of Java alone as soon as there is one."""
        found: list[int] = []

        def look() -> bool:
            found[:] = self.javas
            return bool(found)

        if not look() and not python:
            self.until(look)
        if python:
            self.process.kill()
        for pid in found if java else ():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(60)
        until(lambda: not any(_runs(pid) for pid in found), f"the end of Spark's Java: {found}")


def _section(name: str, values: Mapping[str, object]) -> str:
    return f"[{name}]\n" + "".join(f"{key} = {_inline(value)}\n" for key, value in values.items())


def _inline(value: object) -> str:
    """The value in TOML, a mapping as an inline table."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{json.dumps(name)} = {_inline(one)}' for name, one in value.items())}}}"
    return json.dumps(value)


def read_metrics(port: int, path: str = "metrics") -> str:
    """What the process tells Prometheus, or its status."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=60) as answer:
        return str(answer.read().decode())


def _parents() -> Iterator[tuple[int, int]]:
    """The id of every process that runs, and its parent's."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                state, parent = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[:2]
                if state != "Z":
                    yield int(entry.name), int(parent)


def descendants_of(ancestor: int, words: bytes) -> list[int]:
    """The same of all that it has started, and that those have: by their ids."""
    parents = dict(_parents())
    family = {ancestor}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return sorted(pid for pid in family if _has_words(pid, words))


def _has_words(pid: int, words: bytes) -> bool:
    with suppress(OSError):
        return words in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _is_sparks(pid: int) -> bool:
    return _has_words(pid, b"spark-submit") or _has_words(pid, b"SparkSubmit")


def _is_of_tasks(pid: int) -> bool:
    with suppress(OSError):
        return b"pyspark" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _runs(pid: int) -> bool:
    return any(one == pid for one, _ in _parents())


def kills(many: int) -> int:
    """So many; or as many as TAILRACE_TEST_KILLS says, where a bug is to be shown and not its absence."""
    return int(os.environ.get("TAILRACE_TEST_KILLS", many))


def has_workers(stream: StreamProcess) -> bool:
    """Whether there are processes of tasks."""
    return bool(stream.workers)


def kill_all(processes: list[int]) -> int:
    """kill -9 of processes of which some may have ended; how many had not."""
    killed = 0
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            killed += 1
    return killed


def followed(spark: SparkSession, settings: Settings, sink: Sink, **more: Any) -> list[Progress]:
    """Stream what is there, then end; the progress of each batch."""
    batches: list[Progress] = []
    Stream(spark, settings, sink, on_batch=batches.append, **more).run(availableNow=True)
    return batches


class Running:
    """A stream in a thread of its own, which the event ends. What it raised is raised at the end of the `with`."""

    def __init__(self, stream: Stream, stop: threading.Event, **trigger: Any) -> None:
        self.stream, self._stop, self._trigger = stream, stop, trigger
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self._run, name="stream")

    def _run(self) -> None:
        try:
            self.stream.run(**self._trigger)
        except Exception as error:
            self.error = error

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        self.thread.join(120)
        assert not self.thread.is_alive()
        if self.error is not None and kind is None:
            raise self.error

    def until(self, condition: Callable[[], bool], seconds: float = 180, what: str = "") -> None:
        """Wait for the condition; fails where the stream ends before."""
        what = what or text_of(condition)
        until(condition, what, seconds, over=lambda: not self.thread.is_alive(), state=self.state)

    def state(self) -> object:
        """What is told where that fails."""
        return self.error or ""
