"""The stream, so that it can be killed: in this process with the session's Spark, or as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from tailrace_common.settings import Settings
from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.protocol import Capabilities, SweepingSink, write_here
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.support.here_sink import HereSink
from tests.support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Sections = Mapping[str, Mapping[str, object]]
"""Settings, as their file has them."""

_TRIGGER: Final = "0.2 seconds"


class Both(HereSink):
    """Writes every micro-batch into several sinks, one after the other: they are in step but for a crash."""

    def __init__(self, sinks: Iterable[SweepingSink]) -> None:
        self._sinks = tuple(sinks)

    def take(self, pieces: Iterable[Piece]) -> Summary:
        """What the last one said of it."""
        kept, summary = list(pieces), Summary()
        for sink in self._sinks:
            summary = write_here(sink, kept)
        return summary

    def sweep(self) -> int:
        return sum(sink.sweep() for sink in self._sinks)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(sweeping=self)

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()


def open_sinks(urls: Iterable[str]) -> Both:
    """One sink over the databases of these URLs."""
    return Both([SqlSink(url) for url in urls])


class Follower(Protocol):
    """A stream that runs from a checkpoint on. `kill` ends it in the middle of whatever it does."""

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def stop(self) -> None: ...

    def abandon(self) -> None:
        """End it in any way, where the trial is over."""

    def check(self) -> None:
        """Fails when it has ended by itself."""

    def words(self) -> str:
        """The end of its log, where it has one."""


class _Crashing(Both):
    """Dies, when asked to, between the commit of a database and the next one's, or the checkpoint's."""

    def __init__(self, sinks: Iterable[SweepingSink]) -> None:
        super().__init__(sinks)
        self.crash = threading.Event()

    def take(self, pieces: Iterable[Piece]) -> Summary:
        kept, summary = list(pieces), Summary()
        for sink in self._sinks:
            summary = write_here(sink, kept)
            if self.crash.is_set() and kept:
                raise RuntimeError("killed behind a commit of a sink")
        return summary


class HereFollower:
    """The stream in a thread of this process; killed, it dies behind the next commit of one of its sinks."""

    def __init__(self, spark: SparkSession, settings: Sections, urls: Iterable[str]) -> None:
        self._spark = spark
        self._settings = Settings.model_validate(settings)
        self._urls = tuple(urls)
        self._sink = _Crashing([])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._error: BaseException | None = None

    def start(self) -> None:
        self._sink, self._error = _Crashing([SqlSink(url) for url in self._urls]), None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower")
        self._thread.start()

    def kill(self) -> None:
        """Needs a batch to come: there must be changes on their way."""
        self._sink.crash.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), "nothing came that it could die of"
        assert "killed behind" in str(self._error), self._error

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(120)
        assert self._error is None, self._error

    def abandon(self) -> None:
        self._stop.set()
        self._thread.join(120)

    def check(self) -> None:
        assert self._thread.is_alive(), self._error

    def words(self) -> str:
        return ""

    def _run(self) -> None:
        try:
            Stream(self._spark, self._settings, self._sink, stop=self._stop).run(processingTime=_TRIGGER)
        except ServiceError as error:
            self._error = error
        finally:
            self._sink.close()


class ProcessFollower:
    """The stream as a process with a Spark of its own, and kill -9."""

    def __init__(self, directory: Path, settings: Sections, urls: Iterable[str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.log = directory / "stream.log"
        self._directory = directory
        self._config = directory / "stream.json"
        self._config.write_text(json.dumps({"settings": settings, "urls": list(urls)}))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.oracle.following", str(self._config)],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            code = self._process.wait(120)
        finally:
            self._signal(signal.SIGKILL)
        assert code == 0, self.words()

    def abandon(self) -> None:
        self.kill()

    def check(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self.words()

    def words(self) -> str:
        return self.log.read_text()[-6000:]

    def _signal(self, number: signal.Signals) -> None:
        """To the whole group: Python and the JVM that it started."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
        self._process.wait(60)
        until(lambda: not _lives(self._process), "the end of the stream's process")


def _lives(process: subprocess.Popen[bytes] | None) -> bool:
    try:
        os.killpg(process.pid if process is not None else 0, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def main(config: Path) -> None:
    """Run the stream until SIGTERM."""
    from tests.services.spark import start_spark

    told: dict[str, Any] = json.loads(config.read_text())
    stop = threading.Event()
    spark = start_spark(config.parent)
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    sinks = open_sinks(told["urls"])
    try:
        settings = Settings.model_validate(told["settings"])
        Stream(spark, settings, sinks, stop=stop).run(processingTime=_TRIGGER)
    finally:
        sinks.close()
        spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
