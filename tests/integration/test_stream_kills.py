"""kill -9 of `tailrace stream` and of its Java, under load: the sink comes out equal to what was published."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Self

import pytest
import sqlalchemy as sa

from tailrace.local import LocalKafka
from tailrace_schemas.change import Change, Marker
from tests.integration import dying_stream
from tests.integration.dying_stream import Step
from tests.integration.feed import Feed
from tests.integration.streams import StreamProcess
from tests.postgres import new_database
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database
from tests.unit.tables import table

ITEMS = table({"id": "int"}, regular={"v": "text", "w": "int"}, keyspace="shop", name="items")
LOG = Log(ITEMS)
IDS = 200
TTL_SECONDS = 2
LAST = 16

Row = tuple[int, str | None, int | None]


class Source:
    """One table as its writes leave it: each is newer than all before it. What has a time to live is never kept."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._written = int(time.time() * 1e6) - 3_600_000_000
        self._rows: dict[int, tuple[bool, str | None, int | None]] = {}

    def rows(self) -> list[Row]:
        """What SELECT shows once all that expires has."""
        live = {key: row for key, row in self._rows.items() if row != (False, None, None)}
        return sorted((key, v, w) for key, (_, v, w) in live.items())

    def statement(self) -> Change:
        """The next one's change."""
        self._written += 1
        key, at, number = self._random.randrange(IDS), self._written, self._random.randrange(1000)
        marked, v, w = self._rows.get(key, (False, None, None))
        match self._random.randrange(8):
            case 0:
                self._rows.pop(key, None)
                return LOG.delete((key,), (), at)
            case 1:
                return self._expiring(IDS + key, at)
            case 2 | 3:
                self._rows[key] = (marked, v, number)
                return LOG.update((key,), (), at, w=number)
            case 4:
                self._rows[key] = (marked, None, w)
                return LOG.update((key,), (), at, v=None)
            case _:
                self._rows[key] = (True, f"v{number}", number)
                return LOG.insert((key,), (), at, v=f"v{number}", w=number)

    def last(self) -> list[Change]:
        """Rows that are written behind all others, in every partition of the topic."""
        return [self._last(number) for number in range(2 * IDS, 2 * IDS + LAST)]

    def _last(self, key: int) -> Change:
        self._written += 1
        self._rows[key] = (True, "last", None)
        return LOG.insert((key,), (), self._written, v="last")

    def _expiring(self, key: int, at: int) -> Change:
        change, expires = LOG.insert((key,), (), at, v="soon gone"), int(time.time()) + TTL_SECONDS
        cells = tuple(replace(cell, ttl=TTL_SECONDS, expires=expires) for cell in change.cells)
        return replace(change, marker=Marker(at, TTL_SECONDS, expires), cells=cells)


class Load:
    """Writes to the source, ten changes in a transaction every so many seconds, until the end of the `with`."""

    def __init__(self, feed: Feed, source: Source, seconds: float = 0.05) -> None:
        self._feed = feed
        self._source = source
        self._seconds = seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write, name="load")
        self.sent = 0

    def _write(self) -> None:
        while not self._over.wait(self._seconds):
            changes = [self._source.statement() for _ in range(10)]
            self._feed.publish(changes)
            self.sent += len(changes)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._over.set()
        self._thread.join()


class Trial:
    """One source, its topics, one sink, and the processes between them."""

    def __init__(
        self, place: Path, kafka: LocalKafka, prefix: str, url: str, *, execution: str = "driver", seed: int = 1
    ) -> None:
        self._place, self._kafka, self._prefix, self._url = place, kafka, prefix, url
        self._settings = {"execution": json.dumps(execution)}
        self.execution = execution
        self._feed = Feed(kafka.bootstrap, prefix)
        self._feed.announce()
        self.database = Database(url, sa.create_engine(url))
        self.source = Source(seed)

    def close(self) -> None:
        self.database.engine.dispose()
        self._feed.close()

    def load(self) -> Load:
        return Load(self._feed, self.source)

    def stream(self) -> StreamProcess:
        """A stream, not started."""
        return StreamProcess(self._place, self._kafka, self._prefix, self._url, stream=self._settings)

    def die_at(self, step: Step, nth: int) -> None:
        """A stream that ends itself at a step."""
        program = (dying_stream.__file__, step, str(nth))
        dying = StreamProcess(
            self._place, self._kafka, self._prefix, self._url, name="dying", program=program, stream=self._settings
        )
        with dying as stream:
            assert stream.ended() == -signal.SIGKILL, f"{step}\n{stream.words()}"

    def settle(self, stream: StreamProcess) -> None:
        """Wait until the sink has all there is, and all that expires has: it shows what the source does.

        Nothing was set aside, and the stream ends well.
        """
        self._feed.publish(self.source.last())
        stream.until(self._is_through)
        assert self._shown() == self.source.rows()
        for name in ("tailrace_dead_letters", "tailrace_held_changes"):
            assert self.database.select(f"SELECT * FROM {name}") == []
        assert stream.stop() == 0, stream.words()

    def _is_through(self) -> bool:
        shown = [key for key, _, _ in self._shown()]
        return sum(key >= 2 * IDS for key in shown) == LAST and not any(IDS <= key < 2 * IDS for key in shown)

    def _shown(self) -> list[Row]:
        if "shop_items" not in self.database.names():
            return []
        return sorted(self.database.select("SELECT id, v, w FROM shop_items"))


@pytest.fixture(params=["sqlite", "postgresql"])
def trial(request: pytest.FixtureRequest, kafka: LocalKafka, prefix: str, tmp_path: Path) -> Iterator[Trial]:
    """One with an empty sink, which the driver writes."""
    url = f"sqlite:///{tmp_path / 'sink.db'}" if request.param == "sqlite" else new_database()
    trial = Trial(tmp_path, kafka, prefix, url)
    yield trial
    trial.close()


@pytest.fixture
def task_trial(kafka: LocalKafka, prefix: str, tmp_path: Path) -> Iterator[Trial]:
    """One with an empty PostgreSQL, which tasks write."""
    trial = Trial(tmp_path, kafka, prefix, new_database(), execution="executors")
    yield trial
    trial.close()


def kills(many: int) -> int:
    """So many; or as many as TAILRACE_TEST_KILLS says, where a bug is to be shown and not its absence."""
    return int(os.environ.get("TAILRACE_TEST_KILLS", many))


@pytest.mark.promise("stream.killed")
@pytest.mark.long
def test_a_killed_stream_goes_on(trial: Trial) -> None:
    """At the steps where most is at stake; at all of them, and at any time, `test_many_times`."""
    with trial.load():
        for step in (Step.MERGED, Step.COMMITTED):
            trial.die_at(step, 2)
    with trial.stream() as stream:
        trial.settle(stream)


@pytest.mark.promise("stream.killed")
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_times(trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    """Two thirds at each step in turn, a third at any time: both processes, Python alone, or Java alone."""
    random, steps = Random(7), [step for step in Step if step not in {Step.OWNING, Step.PLANNED, Step.TASKS}]
    victims: tuple[dict[str, bool], ...] = ({}, {"java": False}, {"python": False})
    with trial.load() as load:
        trial.die_at(Step.OWNING, 1)  # a checkpoint is only owned once
        for number in range(kills(60)):
            if number % 3:
                trial.die_at(steps[(number - number // 3) % len(steps)], random.randrange(1, 4))
            else:
                with trial.stream() as stream:
                    time.sleep(random.uniform(2, 9))  # the time of its death is what is varied
                    stream.kill(**victims[number // 3 % 3])
            with capsys.disabled():
                sys.stdout.write(f"\r{number + 1} kills, {load.sent} changes")
    with trial.stream() as stream:
        trial.settle(stream)
    with capsys.disabled():
        sys.stdout.write(f"\nkill -9 of the stream: {kills(60)} kills, {load.sent} changes, no difference\n")


TASK_STEPS = (Step.NOTED, Step.PLANNED, Step.TASKS, Step.COMMITTED, Step.SWEPT)


@pytest.mark.promise("stream.killed")
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_times_by_tasks(task_trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    """A third at the driver's steps, a third of all processes at any time, a third of the tasks' Pythons alone."""
    random, killed = Random(11), 0
    with task_trial.load() as load:
        for number in range(kills(30)):
            if number % 3 == 0:
                task_trial.die_at(TASK_STEPS[number // 3 % len(TASK_STEPS)], random.randrange(1, 4))
                killed += 1
                continue
            with task_trial.stream() as stream:
                stream.until(partial(has_workers, stream))
                time.sleep(random.uniform(0, 3))  # the time of the death is what is varied
                if number % 3 == 1:
                    stream.kill()
                    killed += 1
                else:
                    killed += kill_all(stream.workers)
            with capsys.disabled():
                sys.stdout.write(f"\r{killed} kills, {load.sent} changes")
    with task_trial.stream() as stream:
        task_trial.settle(stream)
    with capsys.disabled():
        sys.stdout.write(f"\nkill -9 of tasks and their driver: {killed} kills, {load.sent} changes, no difference\n")


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
