"""kill -9 of `tailrace stream` and of its Java, under load, into every kind of sink: nothing is lost or distorted."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol

import pytest
from pydantic import BaseModel, SecretStr

from tailrace.local import LocalKafka
from tailrace_schemas.change_json import ChangeJson
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId
from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
from tests import java_sources, opensearch, rabbitmq
from tests.held import Record, hold, jar_version, package
from tests.integration import dying_stream
from tests.integration.dying_stream import Step
from tests.integration.feed import Feed
from tests.integration.streams import StreamProcess
from tests.integration.test_kafka_sink import Topics
from tests.integration.test_stream_kills import (
    IDS,
    ITEMS,
    LAST,
    Load,
    Row,
    Source,
    has_workers,
    kill_all,
    kills,
)
from tests.integration.ways import Ground, Way
from tests.oracle.comparison import Downstream, Followed
from tests.oracle.stores import DeltaTables, IcebergTables, SearchIndexes
from tests.postgres import new_database
from tests.unit.spark.sinks.change_log_contract import Outside, once, place_of, require_order
from tests.unit.spark.sinks.delta.stores import DeltaStored
from tests.unit.spark.sinks.files.test_outlet import local
from tests.unit.spark.sinks.http.test_outlet import Posted
from tests.unit.spark.sinks.iceberg.stores import IcebergHistory
from tests.unit.spark.sinks.rabbitmq.published import Published

Section = Mapping[str, object]
_STEPS: Final = (Step.NOTING, Step.NOTED, Step.READ, Step.WRITING, Step.COMMITTED)
_TASK_STEPS: Final = (Step.TASKS, Step.PLANNED, Step.COMMITTED, Step.NOTED)


class Target(Protocol):
    """What a stream's sink writes, as its readers have it."""

    @property
    def section(self) -> Section:
        """The sink's settings."""

    def rows(self) -> list[Row]:
        """The rows of the source's table that a reader has, sorted."""

    def require(self, published: int) -> None:
        """That nothing was set aside; of a change log, that it has so many changes, as its kind promises."""


class Merged:
    """A store that is read as a table."""

    def __init__(self, section: Section, store: Followed) -> None:
        self.section = section
        self._store = store

    def rows(self) -> list[Row]:
        return sorted((int(str(row[0])), *row[1:]) for row in self._store.rows(ITEMS))  # type: ignore[misc]  # v, w

    def require(self, published: int) -> None:  # noqa: ARG002 - it is a Target's
        assert self._store.set_aside() == []


class Logged:
    """A change log: its reader merges it into a table."""

    def __init__(self, section: Section, outside: Outside, place: Path) -> None:
        self.section = section
        self._outside = outside
        self._place = place
        self._made = 0

    def rows(self) -> list[Row]:
        records = once(self._outside.records())
        if sum(record["key"] is not None and record["key"]["id"] >= 2 * IDS for record in records) < LAST:
            return []
        form = ChangeJson(ITEMS)
        self._made += 1
        url = f"sqlite:///{self._place / f'merged{self._made}.db'}"
        delivered = tuple(Delivered(RecordId(*place_of(one)), form.read(one)) for one in records)
        with closing(Downstream(url)) as database:
            with closing(database.open(time.time)) as sink:
                sink.write([Piece(delivered)])
                sink.sweep()
            return sorted(database.rows(ITEMS))  # type: ignore[arg-type]  # id, v, w

    def require(self, published: int) -> None:
        records = self._outside.records()
        assert len(once(records)) == published
        assert len(records) == published or not self._outside.exactly_once
        assert list(self._outside.dead_letters()) == []
        require_order(records)


class Imaged(Logged):
    """A change log with row images: the last image of each key is its row, and each begins where the last ended."""

    def rows(self) -> list[Row]:
        shown: dict[int, Mapping[str, Any]] = {}
        for record in once(self._outside.records()):
            assert record["images"] is not None, record
            for image in record["images"]:  # those in `expired` are of keys that other partitions may have
                key = image["key"]["id"]
                if IDS <= key < 2 * IDS:  # it expires
                    continue
                assert image["before"] == shown.get(key), record
                if image["after"] is None:
                    del shown[key]
                else:
                    shown[key] = image["after"]
        return [(key, row.get("v"), row.get("w")) for key, row in sorted(shown.items())]


def section_of(settings: BaseModel, **more: object) -> Section:
    """What was set, as the settings' file has it."""
    told = {name: getattr(settings, name) for name in ("type", *sorted(settings.model_fields_set))}
    plain = {name: one.get_secret_value() if isinstance(one, SecretStr) else one for name, one in told.items()}
    return {**plain, **more}


def _delta(ground: Ground) -> Target:
    settings = DeltaSinkSettings(path=str(ground.directory()), mode="current", buckets=4)
    return Merged(section_of(settings), DeltaTables(settings))


def _iceberg(ground: Ground) -> Target:
    settings = IcebergSinkSettings(path=str(ground.directory()), mode="current", buckets=2)
    return Merged(section_of(settings), IcebergTables(settings))


def _opensearch(_: Ground) -> Target:
    store = SearchIndexes(opensearch.server().url)
    return Merged(section_of(store.settings), store)


def _history(ground: Ground) -> Target:
    settings = DeltaSinkSettings(path=str(ground.directory()))
    return Logged(section_of(settings), DeltaStored(settings), ground.place)


def _iceberg_history(ground: Ground) -> Target:
    settings = IcebergSinkSettings(path=str(ground.directory()))
    return Logged(section_of(settings), IcebergHistory(settings), ground.place)


def _files(ground: Ground) -> Target:
    stored = local(ground.directory())
    return Logged(section_of(stored.settings), stored, ground.place)


def _kafka(ground: Ground) -> Target:
    topics = Topics(ground.kafka)
    section = {
        "type": "kafka", "topic": f"{topics.prefix}-out.{{table}}", "dead_letters": topics.target.dead_letters,
        "kafka": dict(topics.config),
    }  # fmt: skip
    return Logged(section, topics, ground.place)


def _images(ground: Ground) -> Target:
    """A Kafka sink whose rows before each change are in PostgreSQL, where tasks make images."""
    topics = Topics(ground.kafka)
    section = {
        "type": "kafka", "topic": f"{topics.prefix}-out.{{table}}", "dead_letters": topics.target.dead_letters,
        "kafka": dict(topics.config), "images": new_database(),
    }  # fmt: skip
    return Imaged(section, topics, ground.place)


def _http(ground: Ground) -> Target:
    posted = Posted(ground.directory(), batch_records=20)
    ground.stack.callback(posted.endpoint.close)
    return Logged(section_of(posted.settings, dead_letters=str(posted.letters)), posted, ground.place)


def _rabbitmq(ground: Ground) -> Target:
    published = ground.stack.enter_context(closing(Published(ground.directory(), rabbitmq.server(), queues=3)))
    return Logged(section_of(published.settings, dead_letters=str(published.letters)), published, ground.place)


TARGETS: Final[Mapping[str, Way[Target]]] = {
    "delta, current": Way(sink="delta", server=lambda: package("deltalake"), new=_delta),
    "delta, history": Way(sink="delta", server=lambda: package("deltalake"), new=_history),
    "iceberg, current": Way(sink="iceberg", server=lambda: package("pyiceberg"), new=_iceberg),
    "iceberg, history": Way(sink="iceberg", server=lambda: package("pyiceberg"), new=_iceberg_history),
    "files": Way(sink="files", server=lambda: package("pyarrow"), new=_files),
    "kafka": Way(sink="kafka", server=lambda: f"Kafka {jar_version('kafka', 'kafka-server')}", new=_kafka),
    "images": Way(sink="kafka", server=lambda: f"Kafka {jar_version('kafka', 'kafka-server')}", new=_images),
    "http": Way(sink="http", server=lambda: "http.server", new=_http),
    "rabbitmq": Way(
        sink="rabbitmq",
        server=lambda: f"RabbitMQ {rabbitmq.server().version}",
        new=_rabbitmq,
        missing=rabbitmq.missing,
    ),
    "opensearch": Way(
        sink="opensearch",
        server=lambda: SearchIndexes(opensearch.server().url).version,
        new=_opensearch,
        missing=java_sources.missing,
    ),
}


@pytest.fixture
def _held(way: Way[Target], record_property: Record) -> None:
    if (trouble := way.missing()) is not None:
        pytest.skip(trouble)
    hold(record_property, way.sink, "kill -9", way.server())


@pytest.fixture
def target(_held: None, way: Way[Target], ground: Ground) -> Target:
    """An empty one."""
    return way.new(ground)


class Killed:
    """A stream under load into a target, killed again and again."""

    def __init__(self, target: Target, kafka: LocalKafka, prefix: str, place: Path, execution: str) -> None:
        self._target, self._kafka, self._prefix, self._place = target, kafka, prefix, place
        self._settings = {"execution": json.dumps(execution)}
        self.source, self.feed = Source(3), Feed(kafka.bootstrap, prefix)
        self.feed.announce()
        self.killed = 0

    def close(self) -> None:
        self.feed.close()

    def stream(self, **more: Any) -> StreamProcess:
        """One, not started."""
        section = self._target.section
        stream = StreamProcess(self._place, self._kafka, self._prefix, section, stream=self._settings, **more)
        stream.patience = 900.0  # of what is read at once behind all the kills, where much else runs too
        return stream

    def die_at(self, step: Step, nth: int) -> None:
        """A stream that ends itself at a step."""
        with self.stream(name="dying", program=(dying_stream.__file__, step, str(nth))) as dying:
            assert dying.ended(900) == -signal.SIGKILL, f"{step}\n{dying.words()}"
        self.killed += 1

    def kill_tasks(self, running: StreamProcess) -> None:
        """Kill the Pythons of its tasks alone, as soon as there are any."""

        def killed() -> bool:
            count = kill_all(running.workers)
            self.killed += count
            return count > 0

        running.until(killed)

    def settle(self, sent: int) -> int:
        """Write the last rows, and have a stream bring all to its end; how many changes there were."""
        self.feed.publish(self.source.last())
        with self.stream() as running:
            running.until(lambda: self._target.rows() == self.source.rows())
            assert running.stop() == 0, running.words()
        assert self._target.rows() == self.source.rows()
        self._target.require(sent + LAST)
        return sent + LAST


@pytest.mark.promise("sinks.killed")
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", TARGETS.values(), ids=TARGETS)
def test_every_sink_outlives_kills(
    target: Target, kafka: LocalKafka, prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two thirds at steps, a third at any time: both processes, Python alone, or Java alone."""
    random = Random(5)
    victims: tuple[dict[str, bool], ...] = ({}, {"java": False}, {"python": False})
    with closing(Killed(target, kafka, prefix, tmp_path, "driver")) as trial:
        with Load(trial.feed, trial.source, 0.3) as load:
            for number in range(kills(9)):
                if number % 3:
                    trial.die_at(_STEPS[(number - number // 3) % len(_STEPS)], random.randrange(1, 4))
                else:
                    with trial.stream() as running:
                        time.sleep(random.uniform(2, 9))  # the time of its death is what is varied
                        running.kill(**victims[number // 3 % 3])
                    trial.killed += 1
        told(capsys, target, "driver", trial.killed, trial.settle(load.sent))


@pytest.mark.promise("sinks.killed")
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", TARGETS.values(), ids=TARGETS)
def test_every_sink_outlives_kills_by_tasks(
    target: Target, kafka: LocalKafka, prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A third at steps between tasks and commit, a third of tasks' Pythons alone, a third of all at any time."""
    random = Random(6)
    with closing(Killed(target, kafka, prefix, tmp_path, "executors")) as trial:
        with Load(trial.feed, trial.source, 0.3) as load:
            for number in range(kills(9)):
                if number % 3 == 0:
                    trial.die_at(_TASK_STEPS[number // 3 % len(_TASK_STEPS)], random.randrange(1, 4))
                    continue
                with trial.stream() as running:
                    running.until(partial(has_workers, running))
                    time.sleep(random.uniform(0, 3))  # the time of the death is what is varied
                    if number % 3 == 1:
                        trial.kill_tasks(running)
                    else:
                        running.kill()
                        trial.killed += 1
        told(capsys, target, "executors", trial.killed, trial.settle(load.sent))


def told(capsys: pytest.CaptureFixture[str], target: Target, execution: str, killed: int, changes: int) -> None:
    """Print how much was tried."""
    with capsys.disabled():
        kind = target.section["type"]
        sys.stdout.write(f"\n{kind}, {execution}: {killed} kills, {changes} changes, no difference\n")
