"""A sink is swept every two seconds, never while a batch is being written, and failures are tried again."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from typing import cast

import pytest
from pyspark.sql import SparkSession

from tailrace_common.settings import Settings
from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.job.metrics import StreamMetrics
from tailrace_spark.job.upkeep import Sweeper
from tailrace_spark.sinks.protocol import Capabilities, Follows, follows_all
from tailrace_spark.source import kafka
from tests.support.clock import ManualClock
from tests.support.here_sink import HereSink
from tests.unit.tables import table


class Sink(HereSink):
    """One that cannot be swept."""

    @property
    def capabilities(self) -> Capabilities:
        """None."""
        return Capabilities()

    def take(self, pieces: Iterable[Piece]) -> Summary:
        """Take all of them in, and change no row."""
        return Summary(changes=sum(len(piece.changes) for piece in pieces))

    def close(self) -> None:
        """There is nothing to close."""


class Swept(Sink):
    """One that counts its sweeps, of which so many fail first."""

    def __init__(self, failures: int = 0) -> None:
        self._failures = failures
        self.sweeps = 0

    @property
    def capabilities(self) -> Capabilities:
        """Sweeping."""
        return Capabilities(sweeping=self)

    def sweep(self) -> int:
        """Remove three rows."""
        self.sweeps += 1
        if self.sweeps <= self._failures:
            raise ServiceError("no answer")
        return 3


class Beside(Sink):
    """One that hears which tables its stream follows."""

    def __init__(self) -> None:
        self.follows: Follows = follows_all

    @property
    def capabilities(self) -> Capabilities:
        """Following."""
        return Capabilities(following=self)

    def follow(self, follows: Follows) -> None:
        """As FollowingSink says."""
        self.follows = follows


def test_a_sink_hears_which_tables_its_stream_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their topics, which may have a suffix; in one store others may be other streams'."""
    monkeypatch.setattr(kafka, "reads_topic", lambda _spark, _settings: re.compile(r"t\.shop\.(a|b\.-.{6})").fullmatch)
    sink, settings = Beside(), Settings.model_validate({"topics": {"prefix": "t"}})
    follows = kafka.reads_table(cast(SparkSession, None), settings)
    Sweeper(sink, threading.Lock(), StreamMetrics(), follows=follows)
    names = [of for of in ("a", "b", "c") if sink.follows(table({"id": "int"}, keyspace="shop", name=of))]
    assert names == ["a", "b"]


def rows(metrics: StreamMetrics) -> object:
    counts = metrics.status()["counts"]
    assert isinstance(counts, dict)
    return counts["rows"]


def test_it_is_swept_when_two_seconds_have_passed() -> None:
    sink, clock, metrics = Swept(), ManualClock(10.0), StreamMetrics()
    sweeper = Sweeper(sink, threading.Lock(), metrics, clock)
    for now, sweeps in ((11.9, 0), (12.0, 1), (13.9, 1), (14.0, 2)):
        clock.now = now
        sweeper.run()
        assert sink.sweeps == sweeps
    assert rows(metrics) == 6


def test_a_busy_sink_is_left_alone_and_swept_once_it_is_free() -> None:
    sink, clock, lock = Swept(), ManualClock(10.0), threading.Lock()
    sweeper = Sweeper(sink, lock, StreamMetrics(), clock)
    clock.now = 12.0
    with lock:
        sweeper.run()
        assert sink.sweeps == 0
    sweeper.run()
    assert sink.sweeps == 1
    assert not lock.locked()


def test_a_failure_is_logged_and_the_next_sweep_comes_later_and_later(caplog: pytest.LogCaptureFixture) -> None:
    sink, clock, lock, metrics = Swept(failures=6), ManualClock(10.0), threading.Lock(), StreamMetrics()
    sweeper = Sweeper(sink, lock, metrics, clock)
    clock.now = due = 12.0
    for sweeps, pause in enumerate((4, 8, 16, 32, 60, 60, 2, 2), 1):
        clock.now = due - 0.1
        sweeper.run()
        assert sink.sweeps == sweeps - 1
        clock.now = due
        sweeper.run()
        assert sink.sweeps == sweeps
        assert not lock.locked()
        due += pause
    first = "could not remove expired rows from the sink, and readers see them: no answer. Next try in 4 s."
    assert caplog.messages[0] == first
    assert len(caplog.messages) == 6
    assert rows(metrics) == 6


def test_a_sink_without_sweeps_is_never_touched() -> None:
    clock, lock = ManualClock(10.0), threading.Lock()
    sweeper = Sweeper(Sink(), lock, StreamMetrics(), clock)
    clock.now = 1000.0
    with lock:
        sweeper.run()
