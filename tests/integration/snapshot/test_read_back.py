"""What CQL does not show of rows that a snapshot has read, markers and shards: the copy is what SELECT answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

import pytest

from tailrace_common.kafka import TopicReader
from tailrace_common.settings import Settings
from tailrace_spark.batch.delivery import DeadLetter, RecordId
from tailrace_spark.job.replay import ReplayCounts, replay_sink
from tailrace_spark.sinks.files.settings import FilesSinkSettings
from tailrace_spark.sinks.files.sink_type import FILES
from tailrace_spark.sinks.sink_type import Surroundings
from tailrace_spark.snapshot.progress import State
from tests.integration.letters import topic_of
from tests.integration.snapshot.following import Place, Running, done, running
from tests.oracle.comparison import Downstream, ask, differences
from tests.postgres import new_database
from tests.support.waiting import until

EXECUTIONS = ["driver", pytest.param("executors", marks=pytest.mark.long)]


@contextmanager
def followed(place: Place, name: str, execution: str) -> Iterator[tuple[Running, Downstream]]:
    """A stream that has read a table into a database, and follows it."""
    # Columns may come and go in SQLite only: PostgreSQL's plans of who reads beside the sink are of other columns then.
    url = f"sqlite:///{place.directory / f'{name}.db'}" if execution == "driver" else new_database()
    store = Downstream(url)
    settings = place.settings(name, execution=execution)
    with closing(store), closing(store.open(lambda: 1e9)) as sink, running(place, sink, settings) as stream:
        stream.until_met(done)
        yield stream, store
        assert store.set_aside() == []


def answers(place: Place, name: str) -> set[tuple[object, ...]]:
    [answer] = ask(place.session, [place.table(name)])
    return {row[:2] for row in answer.rows}


@pytest.mark.promise("snapshots.read-back")
@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_row_whose_last_cell_goes_exists_or_not_as_in_cassandra(place: Place, execution: str) -> None:
    name = f"markers_{execution}"
    columns = "k int, c int, s text STATIC, v text, w int, t set<int>, u int"
    place.run(f"CREATE TABLE KS.{name} ({columns}, PRIMARY KEY (k, c))")
    for c in range(6):
        place.run(f"INSERT INTO KS.{name} (k, c, v) VALUES (1, {c}, 'inserted')")
        place.run(f"UPDATE KS.{name} SET v = 'without a marker' WHERE k = 2 AND c = {c}")
        place.run(f"UPDATE KS.{name} SET t = {{1, 2}} WHERE k = 3 AND c = {c}")
        place.run(f"INSERT INTO KS.{name} (k, c, t) VALUES (4, {c}, {{1, 2}})")
    place.run(f"UPDATE KS.{name} SET s = 'alone' WHERE k = 5")
    place.run(f"ALTER TABLE KS.{name} WITH cdc = true")
    with followed(place, name, execution) as (_, store):
        for k in (1, 2):
            place.run(f"DELETE v FROM KS.{name} WHERE k = {k} AND c = 0")
            place.run(f"UPDATE KS.{name} SET v = null, w = null WHERE k = {k} AND c = 1")
            place.run(f"UPDATE KS.{name} SET w = 1 WHERE k = {k} AND c = 2")
            place.run(f"DELETE v FROM KS.{name} WHERE k = {k} AND c = 2")
            place.run(f"DELETE v FROM KS.{name} WHERE k = {k} AND c = 3")
            place.run(f"DELETE FROM KS.{name} WHERE k = {k} AND c = 3")
        for k in (3, 4):
            place.run(f"UPDATE KS.{name} SET t = t - {{1, 2}} WHERE k = {k} AND c = 0")
            place.run(f"DELETE t FROM KS.{name} WHERE k = {k} AND c = 1")
        place.run(f"DELETE s FROM KS.{name} WHERE k = 5")
        place.until_equal(store, name)
        assert {(k, c) for k, c in answers(place, name) if c in (0, 1)} == {(1, 0), (1, 1), (4, 0), (4, 1)}
        # Its marker is known now, and goes with the row.
        if execution == "driver":
            # No row has only this column: what goes with a last column is a known limit (docs/roadmap.md).
            place.run(f"ALTER TABLE KS.{name} DROP u")
        place.run(f"DELETE v FROM KS.{name} WHERE k = 1 AND c = 4")
        place.run(f"DELETE FROM KS.{name} WHERE k = 1 AND c = 0")
        place.until_equal(store, name)
        assert {(1, 0), (1, 4)} & answers(place, name) == {(1, 4)}


@pytest.mark.promise("snapshots.read-back")
@pytest.mark.parametrize("execution", EXECUTIONS)
def test_counters_are_read_by_value_and_read_back_when_the_log_tells_of_them(place: Place, execution: str) -> None:
    name, random = f"hits_{execution}", Random(5)
    place.run(f"CREATE TABLE KS.{name} (k int, c int, total counter STATIC, n counter, m counter, PRIMARY KEY (k, c))")

    def count() -> None:
        column, by, row = random.choice("nm"), random.randrange(-5, 50), f"k = {random.randrange(8)}"
        place.run(f"UPDATE KS.{name} SET {column} = {column} + {by} WHERE {row} AND c = {random.randrange(4)}")
        place.run(f"UPDATE KS.{name} SET total = total + 1 WHERE k = {random.randrange(8)}")

    for _ in range(80):
        count()
    place.run(f"ALTER TABLE KS.{name} WITH cdc = true")
    with followed(place, name, execution) as (stream, store):
        [snapshot] = stream.snapshots.tables
        assert snapshot.rows > 16
        place.until_equal(store, name)
        for _ in range(80):
            count()
        place.run(f"DELETE FROM KS.{name} WHERE k = 1")
        place.run(f"DELETE FROM KS.{name} WHERE k = 2 AND c = 1")
        place.run(f"DELETE n FROM KS.{name} WHERE k = 3 AND c = 1")
        place.until_equal(store, name)
        assert {k for k, _ in answers(place, name)} == set(range(8)) - {1}


@pytest.mark.promise("snapshots.read-back")
def test_a_letter_s_row_is_read_back_when_the_letter_is_replayed(place: Place) -> None:
    place.run("CREATE TABLE KS.letters (k int PRIMARY KEY, v text)")
    place.run("INSERT INTO KS.letters (k, v) VALUES (1, 'a')")
    place.run("ALTER TABLE KS.letters WITH cdc = true")
    url = f"sqlite:///{place.directory / 'letters.db'}"
    sections = {**place.sections("letters"), "sink": {"local": {"type": "sql", "url": url}}}
    settings = Settings.model_validate(sections)
    topic = f"{place.prefix}.{place.keyspace}.letters"
    with closing(Downstream(url)) as store:
        with closing(store.open(lambda: 1e9)) as sink, running(place, sink, settings) as stream:
            stream.until_met(done)
        place.run("DELETE v FROM KS.letters WHERE k = 1")  # the row stays: it has a marker, which the log never told
        with TopicReader({"bootstrap.servers": place.kafka.bootstrap}, topic, beginning=True) as reader:
            [(partition, record)] = until(lambda: [*reader.read_to_end()], "the change in the topic")
        letter = DeadLetter(RecordId(topic, partition, record.offset), "a right was missing", record.value or b"")
        topic_of(place.kafka, place.prefix).put([letter])
        assert [*replay_sink("local", settings)] == [ReplayCounts(taken=1)]
        assert differences(ask(place.session, [place.table("letters")]), store) == []


def test_a_sink_that_appends_refuses_counters_by_name(place: Place, tmp_path: Path) -> None:
    place.run("CREATE TABLE KS.refused_hits (k int PRIMARY KEY, n counter) WITH cdc = true")
    section = FilesSinkSettings(path=str(tmp_path / "files"), format="jsonl")
    sink = FILES.open("files", section, Surroundings(place.prefix))
    with closing(sink):
        stream = place.stream(sink, place.settings("refused_hits", "only"))
        stream.run()
        [snapshot] = stream.snapshots.tables
    assert snapshot.state is State.REFUSED
    assert "takes no totals" in snapshot.reason
