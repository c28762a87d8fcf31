"""kill -9 of `tailrace stream` and of its Java, under load, into every kind of sink: nothing is lost or distorted."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol

import pytest
from pydantic import BaseModel, SecretStr

from tailrace.local import LocalKafka
from tailrace_common.settings_sink_delta import DeltaSinkSettings
from tailrace_schemas.change_json import ChangeJson
from tailrace_spark.sinks.protocol import Delivered, Piece, Place
from tests import opensearch, rabbitmq
from tests.held import Record, hold, jar_version, package
from tests.integration import dying_stream
from tests.integration.dying_stream import Step
from tests.integration.feed import Feed
from tests.integration.streams import StreamProcess
from tests.integration.test_kafka_sink import Topics
from tests.integration.test_stream_kills import IDS, ITEMS, LAST, Load, Row, Source, kills
from tests.oracle.comparison import Downstream, Followed
from tests.oracle.stores import DeltaTables, SearchIndexes
from tests.unit.spark.sinks.change_log_contract import Outside, once, place_of, require_order
from tests.unit.spark.sinks.delta_stores import DeltaStored
from tests.unit.spark.sinks.published import Published
from tests.unit.spark.sinks.test_files import local
from tests.unit.spark.sinks.test_http import Posted

Section = Mapping[str, object]
_STEPS: Final = (Step.NOTING, Step.NOTED, Step.READ, Step.WRITING, Step.COMMITTED)


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
        delivered = tuple(Delivered(Place(*place_of(one)), form.read(one)) for one in records)
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


def section_of(settings: BaseModel, **more: object) -> Section:
    """What was set, as the settings' file has it."""
    told = {name: getattr(settings, name) for name in ("type", *sorted(settings.model_fields_set))}
    plain = {name: one.get_secret_value() if isinstance(one, SecretStr) else one for name, one in told.items()}
    return {**plain, **more}


def _delta(place: Path, _: ExitStack, __: LocalKafka) -> Target:
    settings = DeltaSinkSettings(path=str(place / "lake"), mode="current", buckets=4)
    return Merged(section_of(settings), DeltaTables(place / "lake"))


def _opensearch(_: Path, __: ExitStack, ___: LocalKafka) -> Target:
    store = SearchIndexes(opensearch.server().url)
    return Merged(section_of(store.settings), store)


def _history(place: Path, _: ExitStack, __: LocalKafka) -> Target:
    settings = DeltaSinkSettings(path=str(place / "lake"))
    return Logged(section_of(settings), DeltaStored(settings), place)


def _files(place: Path, _: ExitStack, __: LocalKafka) -> Target:
    stored = local(place / "files")
    return Logged(section_of(stored.settings), stored, place)


def _kafka(place: Path, _: ExitStack, kafka: LocalKafka) -> Target:
    topics = Topics(kafka)
    section = {
        "type": "kafka", "topic": f"{topics.prefix}-out.{{table}}", "dead_letters": topics.target.dead_letters,
        "kafka": dict(topics.config),
    }  # fmt: skip
    return Logged(section, topics, place)


def _http(place: Path, stack: ExitStack, _: LocalKafka) -> Target:
    posted = Posted(place, batch_records=20)
    stack.callback(posted.endpoint.close)
    return Logged(section_of(posted.settings, dead_letters=str(posted.letters)), posted, place)


def _rabbitmq(place: Path, stack: ExitStack, _: LocalKafka) -> Target:
    published = stack.enter_context(closing(Published(place, rabbitmq.server(), queues=3)))
    return Logged(section_of(published.settings, dead_letters=str(published.letters)), published, place)


Making = Callable[[Path, ExitStack, LocalKafka], Target]
TARGETS: Final[Mapping[str, tuple[Making, Callable[[], str], Callable[[], str | None]]]] = {
    "delta, current": (_delta, lambda: package("deltalake"), lambda: None),
    "delta, history": (_history, lambda: package("deltalake"), lambda: None),
    "files": (_files, lambda: package("pyarrow"), lambda: None),
    "kafka": (_kafka, lambda: f"Kafka {jar_version('kafka', 'kafka-server')}", lambda: None),
    "http": (_http, lambda: "http.server", lambda: None),
    "rabbitmq": (_rabbitmq, lambda: f"RabbitMQ {rabbitmq.server().version}", rabbitmq.missing),
    "opensearch": (_opensearch, lambda: SearchIndexes(opensearch.server().url).version, opensearch.missing),
}


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest, kafka: LocalKafka, tmp_path: Path) -> Iterator[Target]:
    """An empty one."""
    make, _, missing = TARGETS[request.param]
    if (trouble := missing()) is not None:
        pytest.skip(trouble)
    with ExitStack() as stack:
        yield make(tmp_path, stack, kafka)


@pytest.fixture
def _held(request: pytest.FixtureRequest, target: Target, record_property: Record) -> None:
    name = request.node.callspec.params["target"]
    hold(record_property, str(target.section["type"]), "kill -9", TARGETS[name][1]())


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("_held")
def test_every_sink_outlives_kills(
    target: Target, kafka: LocalKafka, prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two thirds at steps, a third at any time: both processes, Python alone, or Java alone."""
    random, source, feed = Random(5), Source(3), Feed(kafka.bootstrap, prefix)
    feed.announce()
    victims: tuple[dict[str, bool], ...] = ({}, {"java": False}, {"python": False})

    def stream(**more: Any) -> StreamProcess:
        return StreamProcess(tmp_path, kafka, prefix, target.section, **more)

    with closing(feed):
        with Load(feed, source, 0.3) as load:
            for number in range(kills(9)):
                if number % 3:
                    step = _STEPS[(number - number // 3) % len(_STEPS)]
                    program = (dying_stream.__file__, step, str(random.randrange(1, 4)))
                    with stream(name="dying", program=program) as dying:
                        assert dying.ended() == -signal.SIGKILL, f"{step}\n{dying.words()}"
                else:
                    with stream() as running:
                        time.sleep(random.uniform(2, 9))  # the time of its death is what is varied
                        running.kill(**victims[number // 3 % 3])
        feed.publish(source.last())
        with stream() as running:
            running.until(lambda: target.rows() == source.rows())
            assert running.stop() == 0, running.words()
        assert target.rows() == source.rows()
        target.require(load.sent + LAST)
        with capsys.disabled():
            kind = target.section["type"]
            sys.stdout.write(f"\n{kind}: {kills(9)} kills, {load.sent + LAST} changes, no difference\n")
