"""A worker that is stopped at each step for longer than its lease, and then goes on: it gives up, and changes nothing.

Meanwhile another one has written later changes of the same rows. What SELECT answers of the target is held against the
source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from time import time
from typing import Final

import pytest

from tailrace.local import LocalKafka
from tailrace_schemas.change import Change
from tailrace_server.operations.asking import Asked
from tailrace_spark.sinks.files.store import GoneError
from tests import mariadb, postgres
from tests.integration.feed import Feed
from tests.integration.items import ITEMS, LOG, Row
from tests.integration.letters import letters_in
from tests.integration.server.dying_server import Step
from tests.integration.server.kills import SECONDS, Stopping
from tests.integration.server.servers import ServerProcess, Site
from tests.integration.targets import TARGETS, Merged, Target
from tests.integration.ways import Ground, Way
from tests.oracle.comparison import Downstream
from tests.support.waiting import until

_BEFORE: Final[Mapping[Step, Step]] = {Step.SAVING: Step.COMMITTED, Step.SAVED: Step.COMMITTED}
"""A worker saves without a batch too: these are of one that is in the sink."""
_CLAIMS: Final = (Step.CLAIMED, Step.BEGINNING)
"""Steps that come with a new claim alone."""
_IN_SINK: Final[Mapping[str, tuple[Step, ...]]] = {
    "sql": (Step.READ, Step.WRITING),
    "delta": (Step.COMMITTING,),
    "iceberg": (Step.COMMITTING,),
    "kafka": (Step.COMMITTING,),
    "images": (Step.READ, Step.COMMITTING),
}
"""The steps between a sink's plan and its commit, by its type; of images, which a sink may have, they are others.

Of types without any, `unit/spark/sinks` stops a writer before each piece of a batch, and before its commit.
"""
_KEYS: Final = 8  # of a round: no other one writes them, so that nobody mends what was overwritten
_EQUAL_SECONDS: Final = 120  # of workers that run
_GAVE_UP: Final = re.compile(r"is not this worker's any more|this worker's lease has ended")
_WROTE: Final = re.compile(r"batch \d+: \d+ records")
_HELD_UP: Final = re.compile(r"what runs goes on until its lease ends|waits for the sink|: deferred \d+ changes")
_OUSTED: Final = re.compile(r" fails: .*another (process writes|stream writes|stream has begun to write)")
"""What a worker with a lease says from whom the one that was stopped has taken the sink back."""
_TAKEN_BACK: Final = {"kafka": 1, "files": 1}
"""How often that may be, by the sink's type: one is taken by its first batch, one before the lease is looked at."""
pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


def _sql(new_url: Callable[[Ground], str], ground: Ground) -> Target:
    url = new_url(ground)
    return Merged({"type": "sql", "url": url}, ground.stack.enter_context(closing(Downstream(url))))


_STORES: Final[Mapping[str, Way[Target]]] = {
    "postgresql": Way(sink="sql", server=lambda: "postgresql", new=partial(_sql, lambda _: postgres.new_database())),
    "mysql": Way(
        sink="sql", server=lambda: "mysql", new=partial(_sql, lambda _: mariadb.new_database()), missing=mariadb.missing
    ),
    "sqlite": Way(
        sink="sql", server=lambda: "sqlite", new=partial(_sql, lambda ground: f"sqlite:///{ground.directory()}/copy.db")
    ),
    **TARGETS,
}


class Rewritten:
    """Rows of which a round writes some, and then writes them again: each change is newer than all before it."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._written = int(time() * 1e6) - 3_600_000_000
        self._rows: dict[int, tuple[str | None, int | None]] = {}

    def first(self) -> list[Change]:
        """All rows of rounds, before the first one."""
        return [self._insert(key, "first", 0) for key in range(self._rounds * _KEYS)]

    def behind(self, number: int) -> list[Change]:
        """A row behind a round."""
        return [self._insert(self._rounds * _KEYS + number, f"behind {number}", 3)]

    def earlier(self, number: int) -> list[Change]:
        """Of a round, what the stopped worker may have read."""
        return [self._insert(key, f"earlier {number}", 1) for key in self._keys(number)]

    def later(self, number: int) -> list[Change]:
        """Of the same rows: one column, the other, all of it, or its end."""
        return [self._later(key, number) for key in self._keys(number)]

    def rows(self) -> list[Row]:
        """What SELECT shows."""
        return sorted((key, v, w) for key, (v, w) in self._rows.items())

    def _keys(self, number: int) -> range:
        return range(number * _KEYS, (number + 1) * _KEYS)

    def _later(self, key: int, number: int) -> Change:
        v, w = self._rows.pop(key)
        match key % 4:
            case 0:
                self._rows[key] = v, 2
                return LOG.update((key,), (), self._now(), w=2)
            case 1:
                self._rows[key] = None, w
                return LOG.update((key,), (), self._now(), v=None)
            case 2:
                return LOG.delete((key,), (), self._now())
            case _:
                return self._insert(key, f"later {number}", 2)

    def _insert(self, key: int, v: str, w: int) -> Change:
        self._rows[key] = v, w
        return LOG.insert((key,), (), self._now(), v=v, w=w)

    def _now(self) -> int:
        self._written += 1
        return self._written


class Trial:
    """A source, its subscription into a target, and two workers of which one is stopped in each round."""

    def __init__(self, site: Site, feed: Feed, target: Target, workers: Stopping, rounds: int) -> None:
        self._site, self._feed, self._target, self._workers = site, feed, target, workers
        self._source, self._published, self._round = Rewritten(rounds), 0, 0
        self._publish(self._source.first())

    def begin(self) -> None:
        """A round: the first one that runs it is stopped before its first batch, so that the sink knows no earlier."""
        self._workers.order(Step.PLANNING)
        for name in ("left", "right"):
            self._workers.start(name)
        self._end(self._workers.stopped())

    def stop(self, step: Step) -> None:
        """A round: the worker that runs the subscription is stopped at a step of a batch."""
        self._workers.order(_BEFORE.get(step, step))
        self._publish(self._source.earlier(self._round))
        asleep = self._workers.stopped()
        if step in _BEFORE:
            self._workers.order(step)
            self._workers.go_on(asleep)
            asleep = self._workers.stopped()
        self._end(asleep)

    def stop_claiming(self, step: Step) -> None:
        """A round: the other one takes over and is stopped at a step of its claim, and the former owner succeeds it."""
        self._workers.order(Step.COMMITTED)
        self._publish(self._source.earlier(self._round))
        former = self._workers.stopped()
        self._workers.order(step)
        asleep = self._workers.stopped()
        self._continue(former)
        self._end(asleep)

    def _end(self, asleep: ServerProcess) -> None:
        """The other one takes over and writes what comes; then the one that sleeps goes on, and changes nothing."""
        heir = self._workers.other(asleep)
        begun = len(heir.log.read_text())
        self._publish(self._source.later(self._round))

        def said(words: re.Pattern[str]) -> bool:
            return words.search(heir.log.read_text()[begun:]) is not None

        # Before its first batch is written, a reader would meet tables that are being made.
        heir.until(lambda: said(_WROTE) or said(_HELD_UP), SECONDS)
        heir.until(lambda: self.is_equal() or said(_HELD_UP), SECONDS)

        self._continue(asleep)
        self._publish(self._source.behind(self._round))
        until(self.is_equal, "an equal target", _EQUAL_SECONDS, state=self._difference)
        self._round += 1

    def _continue(self, asleep: ServerProcess) -> None:
        """It lives on, and gives up."""
        before = len(asleep.log.read_text())
        self._workers.go_on(asleep)
        asleep.until(lambda: _GAVE_UP.search(asleep.log.read_text()[before:]) is not None, SECONDS)

    def finish(self) -> None:
        """All is well, nothing was set aside, and both workers end well."""
        first, _ = self._workers.workers
        first.until(lambda: self._site.states()["copy"]["state"] == "active", SECONDS)
        for worker in self._workers.workers:
            assert worker.stop() == 0, worker.words()
        assert self.is_equal()
        self._target.require(self._published)
        ousted = sum(len(_OUSTED.findall(worker.log.read_text())) for worker in self._workers.workers)
        assert ousted <= _TAKEN_BACK.get(str(self._target.section["type"]), 0)
        assert self._site.owners() == {None}
        assert letters_in(self._site.kafka, self._site.prefix) == []

    def is_equal(self) -> bool:
        """Whether the target shows what the source does."""
        with suppress(GoneError):  # a batch that is cut otherwise has its files written again, under other names
            arrived = self._target.arrived(self._published)
            return arrived and sorted(self._target.rows(ITEMS), key=repr) == sorted(self._source.rows(), key=repr)
        return False

    def _difference(self) -> str:
        stored, source = ({*map(repr, rows)} for rows in (self._target.rows(ITEMS), self._source.rows()))
        return f"only in the source: {sorted(source - stored)}\nonly in the target: {sorted(stored - source)}"

    def _publish(self, changes: list[Change]) -> None:
        self._feed.publish(changes)
        self._published += len(changes)


@pytest.fixture
def target(store: str, ground: Ground) -> Target:
    """An empty one."""
    way = _STORES[store]
    if (trouble := way.missing()) is not None:
        pytest.skip(trouble)
    return way.new(ground)


@pytest.mark.promise("subscription.take-over", "sink.successor")
@pytest.mark.parametrize("store", _STORES)
def test_a_worker_that_was_stopped_for_longer_than_its_lease_changes_nothing(
    tmp_path: Path, kafka: LocalKafka, prefix: str, feed: Feed, store: str, target: Target
) -> None:
    """At each step, by one pair of workers, of which each takes over from the other.

    The steps of the worker's own are the same for all sinks: they are tried with one.
    """
    site = Site(tmp_path, kafka, prefix, postgres.new_database())
    name = site.declare("copy", target.section)
    feed.add(ITEMS)
    with site.operations() as operations:
        operations.subscribe(Asked(table=str(ITEMS), name="copy", target=name))
    kind = "images" if "images" in target.section else str(target.section["type"])
    in_sink = _IN_SINK.get(kind, ())
    steps: tuple[Step, ...] = in_sink or (Step.COMMITTED,)
    claims: tuple[Step, ...] = ()
    if store == "postgresql":
        steps, claims = (Step.PLANNING, *in_sink, Step.COMMITTED, Step.SAVING, Step.SAVED), _CLAIMS

    with ExitStack() as stack:
        trial = Trial(site, feed, target, Stopping(site, stack), 1 + len(steps) + len(claims))
        trial.begin()
        for step in steps:
            trial.stop(step)
        for step in claims:
            trial.stop_claiming(step)
        trial.finish()
