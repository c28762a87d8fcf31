"""What other versions noted of a table in a database: earlier ones are read, and written in the form of now."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa

from tailrace_schemas.errors import SettingsError
from tailrace_spark.batch.sink_progress import SinkProgress
from tailrace_spark.merge.table_record import TableRecord, decode_record, encode_record
from tailrace_spark.sinks.sql.catalog import TABLES
from tailrace_spark.sinks.sql.deferred import HELD_TABLES
from tailrace_spark.sinks.sql.sink import SqlSink
from tailrace_spark.sinks.state_store.formats import FORMAT, FORMATS
from tailrace_spark.sinks.state_store.tables import CATALOG
from tailrace_spark.sinks.writing import write_here
from tests.support.expiry import Time
from tests.support.letters import MemoryLetters
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database, piece
from tests.unit.spark.sinks.sql.writing import named

FORMER, NOW, LATER = (Log(named(*names)) for names in (("k", "c"), ("kk", "c"), ("kk", "c", "v", "w")))


def age(database: Database, table: sa.Table) -> TableRecord:
    """Give the one record of a table of the catalog the form of before there were records; what it is of."""
    with database.engine.begin() as connection:
        record, _ = decode_record(connection.execute(sa.select(table.c.definition)).scalar_one())
        members = json.loads(encode_record(record))
        former = {**members["definition"], "announced": record.announced}
        connection.execute(sa.update(table).values(definition=json.dumps(former, sort_keys=True)))
    return record


@pytest.mark.promise("catalog.earlier-versions")
def test_a_table_keeps_its_names_and_takes_new_columns(database: Database) -> None:
    sink = SqlSink(database.url)
    write_here(sink, [piece([NOW.insert(("a",), ("b",), 1, v="x")], announced=5)])
    sink.close()
    assert age(database, TABLES).announced == 5

    sink = SqlSink(database.url)
    write_here(sink, [piece([FORMER.insert(("a",), ("c",), 2, v="y")], announced=4)])
    assert database.columns("shop_t") == ["kk", "c", "s", "v"]
    write_here(sink, [piece([LATER.insert(("a",), ("d",), 3, w="z")], announced=6)])
    sink.close()

    assert database.select("SELECT kk, c, v, w FROM shop_t ORDER BY c") == [
        ("a", "b", "x", None), ("a", "c", "y", None), ("a", "d", None, "z"),
    ]  # fmt: skip
    [(text,)] = database.select("SELECT definition FROM tailrace_tables")
    assert json.loads(text)["record"] == 1
    assert decode_record(text)[0].announced == 6


@pytest.mark.promise("catalog.earlier-versions")
def test_changes_that_wait_are_merged(database: Database) -> None:
    time = Time(100)
    sink = SqlSink(database.url, clock=time)
    write_here(sink, [piece([NOW.insert(("a",), ("b",), 1, v="x")], announced=5)])
    with database.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE shop_t__state RENAME TO elsewhere")
    assert write_here(sink, [piece([NOW.insert(("a",), ("c",), 2, v="y")], announced=5)]).deferred == 1
    sink.close()
    age(database, HELD_TABLES)

    sink = SqlSink(database.url, clock=time)
    assert write_here(sink, [piece([FORMER.insert(("a",), ("d",), 3, v="z")], announced=4)]).deferred == 1
    [(text,)] = database.select("SELECT definition FROM tailrace_held_tables")
    assert decode_record(text)[0].announced == 5
    with database.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE elsewhere RENAME TO shop_t__state")
    time.now += 1_000
    sink.sweep()
    sink.close()
    assert database.select("SELECT kk, c, v FROM shop_t ORDER BY c") == [
        ("a", "b", "x"),
        ("a", "c", "y"),
        ("a", "d", "z"),
    ]


@pytest.mark.promise("catalog.later-versions")
def test_a_table_of_a_later_version_ends_the_stream(database: Database) -> None:
    """Its changes stay in the topic: they are no dead letters, and nothing is deferred."""
    sink = SqlSink(database.url)
    write_here(sink, [piece([NOW.insert(("a",), ("b",), 1, v="x")])])
    sink.close()
    with database.engine.begin() as connection:
        connection.execute(sa.update(TABLES).values(definition='{"record": 2}'))
    letters = MemoryLetters()
    sink = SqlSink(database.url, letters=letters)
    with pytest.raises(SettingsError, match="later version"):
        write_here(sink, [piece([NOW.insert(("a",), ("c",), 2, v="y")])])
    sink.close()
    assert database.select("SELECT c FROM shop_t") == [("b",)]
    assert letters.all == []
    assert database.select("SELECT count(*) FROM tailrace_held_changes") == [(0,)]


@pytest.mark.promise("sql.later-formats")
@pytest.mark.parametrize("name", ["tailrace_streams", "tailrace_fences"])
def test_tables_of_a_later_format_are_refused(database: Database, name: str) -> None:
    """Nothing is read or written, and nothing is made: each table may mean something else."""
    sink = SqlSink(database.url)
    write_here(sink, [piece([NOW.insert(("a",), ("b",), 1, v="x")])])
    sink.close()
    with database.engine.begin() as connection:
        connection.execute(sa.update(FORMATS).where(FORMATS.c.name == name).values(format=2))
        connection.exec_driver_sql("DROP TABLE tailrace_held_changes")
    before = database.everything()
    sink = SqlSink(database.url)
    with pytest.raises(SettingsError, match=rf"the table {name} in .* by a newer Tailrace .format 2.*Install"):
        write_here(sink, [piece([NOW.insert(("a",), ("c",), 2, v="y")])])
    with pytest.raises(SettingsError, match="newer Tailrace"):
        sink.progress("s")
    sink.close()
    assert database.everything() == before


@pytest.mark.promise("sql.later-formats")
def test_a_database_without_formats_goes_on_and_gets_them(database: Database) -> None:
    sink = SqlSink(database.url)
    write_here(sink, [piece([NOW.insert(("a",), ("b",), 1, v="x")])])
    sink.keep_progress(SinkProgress("s", 4, {("t.ks.t", 0): 9}))
    sink.close()
    with database.engine.begin() as connection:
        FORMATS.drop(connection)
    sink = SqlSink(database.url)
    assert sink.progress("s") == SinkProgress("s", 4, {("t.ks.t", 0): 9})
    write_here(sink, [piece([NOW.insert(("a",), ("c",), 2, v="y")])])
    sink.close()
    assert database.select("SELECT c, v FROM shop_t") == [("b", "x"), ("c", "y")]
    expected = [(name, FORMAT) for name in sorted(CATALOG.tables) if name != "tailrace_formats"]
    assert database.select("SELECT name, format FROM tailrace_formats") == expected


def test_a_table_that_this_version_does_not_know_may_have_any_format(database: Database) -> None:
    """A later version that keeps something beside the others harms nobody."""
    sink = SqlSink(database.url)
    write_here(sink, [piece([NOW.insert(("a",), ("b",), 1, v="x")])])
    sink.close()
    with database.engine.begin() as connection:
        connection.execute(sa.insert(FORMATS).values(name="tailrace_of_later", format=7))
    sink = SqlSink(database.url)
    assert write_here(sink, [piece([NOW.insert(("a",), ("c",), 2, v="y")])]).rows == 1
    sink.close()
