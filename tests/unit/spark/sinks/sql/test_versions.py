"""What other versions noted in a database: of one table, and of the tables of Tailrace's own."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from tailrace_schemas.errors import SettingsError
from tailrace_spark.batch.delivery import SinkProgress
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.sql.catalog import TABLES
from tailrace_spark.sinks.sql.sink import SqlSink
from tailrace_spark.sinks.state_store.tables import CATALOG, FORMAT, FORMATS
from tests.support.letters import MemoryLetters
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database, piece
from tests.unit.spark.sinks.sql.writing import named, write

NOW = Log(named("kk", "c"))


@pytest.mark.promise("catalog.later-versions")
def test_a_table_of_another_version_ends_the_stream(database: Database) -> None:
    """Its changes stay in the topic: they are no dead letters, and nothing is deferred."""
    write(database, NOW.insert(("a",), ("b",), 1, v="x"))
    with database.engine.begin() as connection:
        connection.execute(sa.update(TABLES).values(definition='{"record": 2}'))
    letters = MemoryLetters()
    sink = SqlSink(database.url, letters=letters)
    with pytest.raises(SettingsError, match="another version"):
        write_here(sink, [piece([NOW.insert(("a",), ("c",), 2, v="y")])])
    sink.close()
    assert database.select("SELECT c FROM shop_t") == [("b",)]
    assert letters.all == []
    assert database.select("SELECT count(*) FROM tailrace_deferred_changes") == [(0,)]


@pytest.mark.promise("sql.later-formats")
@pytest.mark.parametrize("name", ["tailrace_streams", "tailrace_fences"])
def test_tables_of_another_format_are_refused(database: Database, name: str) -> None:
    """Nothing is read or written, and nothing is made: each table may mean something else."""
    write(database, NOW.insert(("a",), ("b",), 1, v="x"))
    with database.engine.begin() as connection:
        connection.execute(sa.update(FORMATS).where(FORMATS.c.name == name).values(format=2))
        connection.exec_driver_sql("DROP TABLE tailrace_deferred_changes")
    before = database.everything()
    sink = SqlSink(database.url)
    with pytest.raises(SettingsError, match=rf"the table {name} in .* by another version .*format 2.*Install"):
        write_here(sink, [piece([NOW.insert(("a",), ("c",), 2, v="y")])])
    with pytest.raises(SettingsError, match="another version"):
        sink.progress("s")
    sink.close()
    assert database.everything() == before


@pytest.mark.promise("sql.later-formats")
def test_a_database_without_formats_goes_on_and_gets_them(database: Database) -> None:
    """As a kill leaves it in MySQL between making the tables and noting what they are."""
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
    write(database, NOW.insert(("a",), ("b",), 1, v="x"))
    with database.engine.begin() as connection:
        connection.execute(sa.insert(FORMATS).values(name="tailrace_of_later", format=7))
    assert write(database, NOW.insert(("a",), ("c",), 2, v="y")).rows == 1
