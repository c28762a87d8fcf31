"""What holds by the driver holds by tasks: for topics that grow, masks, truncations and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
import sqlalchemy as sa

from tailrace.local import LocalKafka
from tailrace_common.settings import Settings
from tailrace_schemas.change import Change
from tailrace_schemas.digest import change_digest
from tailrace_schemas.errors import SettingsError
from tailrace_spark.job.progress import Progress
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.integration.feed import Feed
from tests.integration.streams import followed
from tests.postgres import new_database
from tests.unit.spark.cassandra import Log, truncate
from tests.unit.spark.sinks.contract import Database
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PEOPLE = table({"id": "int"}, {}, {}, {"email": "text", "age": "int"}, keyspace="shop", name="people")
OTHERS = table({"id": "int"}, regular={"v": "int"}, keyspace="shop", name="others", table_id=uuid4())
EVENTS = table({"at": "int"}, regular={"v": "int"}, keyspace="shop", name="events", table_id=uuid4())
LOG = Log(PEOPLE)
WRITTEN = 5_000_000
NUMBERS = range(30)


@pytest.fixture
def database() -> Iterator[Database]:
    with closing(Database(new_database())) as database:
        yield database


class Follower:
    """Follows the topics into a database, by tasks unless it is told otherwise."""

    def __init__(self, spark: SparkSession, kafka: LocalKafka, prefix: str, directory: Path) -> None:
        self._spark = spark
        self._settings = {"kafka": {"bootstrap.servers": kafka.bootstrap}, "topics": {"prefix": prefix}}
        self._directory = directory

    def __call__(self, database: Database, **stream: object) -> list[Progress]:
        """The batches until all is read that there is."""
        checkpoint = self._directory / str(sa.make_url(database.url).database)
        section = {"snapshot": "never", "checkpoint": str(checkpoint), "execution": "executors", **stream}
        settings = Settings.model_validate({**self._settings, "stream": section})
        with closing(SqlSink(database.url)) as sink:
            return [batch for batch in followed(self._spark, settings, sink) if batch.records]


@pytest.fixture
def follow(spark: SparkSession, kafka: LocalKafka, prefix: str, tmp_path: Path) -> Follower:
    return Follower(spark, kafka, prefix, tmp_path)


def inserts() -> list[Change]:
    return [LOG.insert((number,), (), WRITTEN, email=f"{number}@shop", age=number) for number in NUMBERS]


@pytest.mark.promise("stream.execution")
def test_a_topic_that_grew_is_written_by_the_driver_while_two_partitions_have_one_key(
    feed: Feed, follow: Follower, database: Database
) -> None:
    feed.publish(inserts())
    feed.add(PEOPLE)
    feed.grow(PEOPLE, 5)
    feed.publish([LOG.update((number,), (), WRITTEN + 1, age=number + 100) for number in NUMBERS])
    assert [(batch.execution, batch.records) for batch in follow(database)] == [("driver", 60)]
    feed.publish([LOG.update((number,), (), WRITTEN + 2, email="-") for number in NUMBERS])
    assert [(batch.execution, batch.records) for batch in follow(database)] == [("executors", 30)]
    assert database.select("SELECT * FROM shop_people") == sorted(
        ((number, number + 100, "-") for number in NUMBERS), key=repr
    )


@pytest.mark.spine
def test_a_truncation_in_every_partition_takes_all_rows_before_it(
    feed: Feed, follow: Follower, database: Database
) -> None:
    feed.publish(inserts())
    follow(database)
    assert len(database.select("SELECT * FROM shop_people")) == len(NUMBERS)
    truncation = truncate(LOG.table, "11111111-0000-0000-0000-000000000000", WRITTEN + 5_000_000)
    truncation = replace(truncation, digest=change_digest(truncation))
    feed.publish([replace(truncation, token=-(2**63)), replace(truncation, token=0)])
    feed.publish([LOG.insert((99,), (), WRITTEN + 9_000_000, age=1)])
    [batch] = follow(database)
    assert batch.execution == "driver"  # a truncation is of all partitions
    assert database.select("SELECT * FROM shop_people") == [(99, 1, None)]


def test_a_sink_that_only_the_driver_writes_is_refused_for_executors(follow: Follower, tmp_path: Path) -> None:
    lite = f"sqlite:///{tmp_path}/sink.db"
    with pytest.raises(SettingsError, match=r'stream.execution = "executors": this sink is written by the driver'):
        follow(Database(lite))


@pytest.mark.promise("stream.execution")
@pytest.mark.parametrize("execution", ["driver", "executors"])
def test_changes_are_filtered_and_masked_by_the_driver_and_by_tasks(
    feed: Feed, follow: Follower, database: Database, execution: str
) -> None:
    """A filter sees values before masks, and a table without one passes whole."""
    feed.publish([*inserts(), *[Log(OTHERS).insert((number,), (), WRITTEN, v=1) for number in NUMBERS]])
    where, columns = {"shop.people": "id < 10"}, {"shop.people.age": "rename years"}
    [batch] = follow(database, where=where, columns=columns, execution=execution)
    assert (batch.execution, batch.records, batch.summary.changes) == (execution, 60, 40)
    assert batch.left_out == {"shop.people": 20}
    assert database.select("SELECT id, years FROM shop_people") == sorted(
        ((number, number) for number in range(10)), key=repr
    )
    assert len(database.select("SELECT * FROM shop_others")) == 30


@pytest.mark.promise("shaping.unfit")
def test_a_table_that_is_known_and_does_not_fit_is_refused_at_the_start(
    feed: Feed, follow: Follower, database: Database, prefix: str
) -> None:
    """But not one that the stream does not read; a pattern that nothing matches yet is fine."""
    feed.publish([*inserts(), Log(EVENTS).insert((1,), (), WRITTEN, v=1)])
    unfit: tuple[tuple[dict[str, object], str], ...] = (
        ({"where": {"shop.*": "id = 1"}}, r'shop\.events: stream\.where "shop\.\*": .*has no column id'),
        ({"columns": {"shop.*.at": "drop"}}, r"stream\.columns: drop of shop\.events\.at"),
    )
    for stream, says in unfit:
        with pytest.raises(SettingsError, match=says):
            follow(database, **stream)  # begins no query
    where = {"shop.*": "id = 1", "none.*": "nothing = 1"}
    [batch] = follow(database, where=where, topics=rf"{prefix}\.shop\.people")
    assert batch.summary.changes == 1


@pytest.mark.spine
@pytest.mark.promise("shaping.filtered-table")
def test_a_definition_that_changes_in_the_middle_of_a_batch_names_the_columns_of_all_of_it(
    feed: Feed, follow: Follower, database: Database
) -> None:
    feed.publish(inserts())
    [key] = PEOPLE.partition_key
    renamed = Log(replace(PEOPLE, partition_key=(replace(key, name="number", name_bytes=b"number"),)))
    feed.publish([renamed.update((number,), (), WRITTEN + 1, age=number + 100) for number in NUMBERS])
    [batch] = follow(database, where={"shop.*": "number >= 25"})
    assert (batch.execution, batch.records, batch.summary.dead_letters) == ("executors", 60, 0), batch
    assert batch.left_out == {"shop.people": 50}, batch
    assert database.select("SELECT age FROM shop_people") == [(number + 100,) for number in NUMBERS if number >= 25]
