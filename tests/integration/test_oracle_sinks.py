"""Random programs of a live node into every kind of sink: each shows what SELECT answered, or tells it."""

from __future__ import annotations

import platform
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, Final
from uuid import uuid4

import pytest

from tailrace.local import LocalCassandra, LocalKafka
from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
from tests import java_sources, mariadb, opensearch, postgres, rabbitmq
from tests.held import Record, hold, jar_version, package
from tests.integration.agents import cql
from tests.integration.topics import Topics
from tests.integration.ways import Ground, Way
from tests.oracle.comparison import Difference, Downstream, Followed, TaskDownstream
from tests.oracle.direct import Recorded, replay
from tests.oracle.filtering import FilteredStore, TableFilter, are_told_apart, by_filters, filters_of
from tests.oracle.images import replay_images
from tests.oracle.kinds import finite_kinds_of
from tests.oracle.logs import replay_log
from tests.oracle.stores import LakeTables, SearchIndexes
from tests.oracle.trial import Ground as Nodes
from tests.oracle.trial import Recorder
from tests.unit.spark.sinks.change_log_contract import Outside
from tests.unit.spark.sinks.console.printed import Printed
from tests.unit.spark.sinks.delta.stores import DeltaStored, FollowedDelta
from tests.unit.spark.sinks.files.stores import local
from tests.unit.spark.sinks.http.posted import Posted
from tests.unit.spark.sinks.iceberg.stores import FollowedIceberg, IcebergHistory
from tests.unit.spark.sinks.opensearch.indexes import Searched
from tests.unit.spark.sinks.rabbitmq.published import Published

FEW: Final = (2, 120)
MANY: Final = (4, 400)
MORE: Final = 10
"""At most so many programs more."""


@pytest.fixture(scope="module")
def programs(
    request: pytest.FixtureRequest,
    cassandra: LocalCassandra,
    kafka: LocalKafka,
    tmp_path_factory: pytest.TempPathFactory,
) -> list[Recorded]:
    """So many programs of so many statements, recorded; and more of them until a filter tells rows apart."""
    number, statements = request.param
    seed = 20 if request.param == FEW else secrets.randbits(32)
    sys.stderr.write(f"seeds from {seed} on, {statements} statements each\n")
    with cql(cassandra) as session:
        nodes = Nodes(nodes=(cassandra,), kafka=kafka, session=session, reading=session)
        with Recorder(nodes, f"o{uuid4().hex[:10]}", tmp_path_factory.mktemp("oracle") / "trial") as recorder:
            found = recorder.random_programs(range(seed, seed + number), finite_kinds_of, statements)
            for another in range(seed + number, seed + number + MORE):
                if any(map(are_told_apart, recorder.recorded)):
                    break
                found += recorder.random_programs([another], finite_kinds_of, statements)
    assert sum(one.counts["rows"] for one in found) > statements * len(found) / 100
    return recorder.recorded


def _database(ground: Ground, url: str) -> Downstream:
    return ground.stack.enter_context(closing(Downstream(url)))


def _searched(kind: opensearch.Kind, *, by_tasks: bool = False) -> Way[Followed]:
    return Way(
        sink="opensearch, tasks" if by_tasks else "opensearch",
        server=lambda: Searched(opensearch.server(kind).url).version,
        new=lambda _: SearchIndexes(opensearch.server(kind).url, by_tasks=by_tasks),
        missing=java_sources.missing,
    )


def _delta(ground: Ground, **more: object) -> DeltaSinkSettings:
    return DeltaSinkSettings.model_validate({"path": str(ground.directory()), **more})


def _iceberg(ground: Ground, **more: object) -> IcebergSinkSettings:
    return IcebergSinkSettings.model_validate({"path": str(ground.directory()), **more})


def _posted(ground: Ground) -> Posted:
    made = Posted(batch_records=20)
    ground.stack.callback(made.endpoint.close)
    return made


def _published(ground: Ground) -> Published:
    return ground.stack.enter_context(closing(Published(rabbitmq.server(), queues=3)))


MERGING: Final[Mapping[str, Way[Followed]]] = {
    "delta": Way(
        sink="delta",
        server=lambda: package("deltalake"),
        new=lambda ground: LakeTables(FollowedDelta(_delta(ground, mode="current", buckets=4))),
        long=False,
    ),
    "iceberg": Way(
        sink="iceberg",
        server=lambda: package("pyiceberg"),
        new=lambda ground: LakeTables(FollowedIceberg(_iceberg(ground, mode="current", buckets=2))),
    ),
    "postgresql": Way(
        sink="sql",
        server=lambda: "postgresql",
        new=lambda ground: _database(ground, postgres.new_database()),
    ),
    "postgresql, tasks": Way(
        sink="sql, tasks",
        server=lambda: "postgresql",
        new=lambda ground: ground.stack.enter_context(closing(TaskDownstream(postgres.new_database()))),
        long=False,
    ),
    "mysql": Way(
        sink="sql",
        server=lambda: "mariadb",
        new=lambda ground: _database(ground, mariadb.new_database()),
        missing=mariadb.missing,
    ),
    "opensearch": _searched("opensearch"),
    "opensearch, tasks": _searched("opensearch", by_tasks=True),
    "elasticsearch": _searched("elasticsearch"),
}
CHANGE_LOGS: Final[Mapping[str, Way[Outside]]] = {
    "files, parquet": Way(
        sink="files", server=lambda: package("pyarrow"), new=lambda ground: local(ground.directory()), long=False
    ),
    "files, jsonl": Way(
        sink="files", server=lambda: package("pyarrow"), new=lambda ground: local(ground.directory(), format="jsonl")
    ),
    "delta": Way(
        sink="delta",
        server=lambda: package("deltalake"),
        new=lambda ground: DeltaStored(_delta(ground)),
    ),
    "iceberg": Way(
        sink="iceberg",
        server=lambda: package("pyiceberg"),
        new=lambda ground: IcebergHistory(_iceberg(ground)),
    ),
    "kafka": Way(
        sink="kafka",
        server=lambda: f"Kafka {jar_version('kafka', 'kafka-server')}",
        new=lambda ground: Topics(ground.kafka),
    ),
    "http": Way(sink="http", server=lambda: f"http.server of Python {platform.python_version()}", new=_posted),
    "rabbitmq": Way(
        sink="rabbitmq",
        server=lambda: f"RabbitMQ {rabbitmq.server().version}",
        new=_published,
        missing=rabbitmq.missing,
    ),
    "console": Way(sink="console", server=lambda: "a pipe", new=lambda _: Printed()),
}


IMAGES: Final[Mapping[str, Way[str]]] = {
    "sqlite": Way(
        sink="images",
        server=lambda: "sqlite",
        new=lambda ground: f"sqlite:///{ground.directory()}/images.db",
        long=False,
    ),
    "postgresql": Way(sink="images", server=lambda: "postgresql", new=lambda _: postgres.new_database()),
    "mysql": Way(
        sink="images", server=lambda: "mariadb", new=lambda _: mariadb.new_database(), missing=mariadb.missing
    ),
}


def _ways(ways: Mapping[str, Way[Any]]) -> pytest.MarkDecorator:
    """Few programs into those of the gate; many into all."""
    few = [pytest.param(FEW, way, id=f"few-{name}") for name, way in ways.items() if not way.long]
    many = [pytest.param(MANY, way, id=f"many-{name}", marks=pytest.mark.long) for name, way in ways.items()]
    return pytest.mark.parametrize(("programs", "way"), [*few, *many], indirect=["programs"])


@pytest.fixture(autouse=True)
def _held(way: Way[Any], record_property: Record) -> None:
    if (trouble := way.missing()) is not None:
        pytest.skip(trouble)
    hold(record_property, way.sink, "oracle", way.server())


@pytest.mark.spine
@pytest.mark.promise("sinks.select")
@pytest.mark.timeout(1200)
@_ways(MERGING)
def test_tables_show_what_select_answers(programs: Sequence[Recorded], way: Way[Followed], ground: Ground) -> None:
    """Whatever comes in whatever order, and a quarter of it twice."""
    told = {one.seed: list(map(str, replay(one, way.new(ground)))) for one in programs}
    assert told == {one.seed: [] for one in programs}


@pytest.mark.promise("shaping.row-filter")
@pytest.mark.timeout(1200)
@_ways({name: way for name, way in MERGING.items() if not way.long})
def test_filtered_tables_show_what_select_answers_of_rows_that_match(
    programs: Sequence[Recorded], way: Way[Followed], ground: Ground
) -> None:
    """Answers are filtered by their own values, after all changes in any order, a quarter of them twice.

    The contract of row filters holds for each of the other sinks.
    """
    require_matching_rows(programs, lambda expected, filters: replay(expected, FilteredStore(way.new(ground), filters)))


def require_matching_rows(
    programs: Sequence[Recorded], replayed: Callable[[Recorded, Mapping[str, TableFilter]], list[Difference]]
) -> None:
    """That no program differs whose answers have the rows alone that match, and that filters leave some rows out."""
    differences, all_rows, matching = dict[int, list[str]](), 0, 0
    for program in programs:
        filters = filters_of(program)
        expected = by_filters(program, filters)
        differences[program.seed] = list(map(str, replayed(expected, filters)))
        all_rows += sum(len(answer.rows) for answer in program.answers)
        matching += sum(len(answer.rows) for answer in expected.answers)
    assert differences == {program.seed: [] for program in programs}
    assert 0 < matching < all_rows


@pytest.mark.promise("sinks.select")
@pytest.mark.timeout(1200)
@_ways(CHANGE_LOGS)
def test_change_logs_tell_what_select_answers(programs: Sequence[Recorded], way: Way[Outside], ground: Ground) -> None:
    """Batches come again, to the same process and to others, and some processes die in the middle of one."""
    told = {
        one.seed: list(map(str, replay_log(one, way.new(ground), ground.place / f"{one.seed}.db"))) for one in programs
    }
    assert told == {one.seed: [] for one in programs}


@pytest.mark.promise("sinks.select", "shaping.row-filter")
@pytest.mark.timeout(1200)
@_ways(IMAGES)
def test_row_images_tell_what_select_answers_of_all_rows_and_of_those_that_match(
    programs: Sequence[Recorded], way: Way[str], ground: Ground
) -> None:
    """In any order, a quarter of the changes and of the batches twice; who follows the images has SELECT's rows."""
    differences = {program.seed: list(map(str, replay_images(program, way.new(ground), {}))) for program in programs}
    assert differences == {program.seed: [] for program in programs}
    require_matching_rows(programs, lambda expected, filters: replay_images(expected, way.new(ground), filters))
