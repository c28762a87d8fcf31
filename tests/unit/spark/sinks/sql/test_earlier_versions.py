"""What other versions noted of a table in a database: earlier ones are read, and written in the form of now."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa

from tailrace_schemas.errors import SettingsError
from tailrace_spark.merge.table_record import TableRecord, decode_record, encode_record
from tailrace_spark.sinks.sql.catalog import TABLES
from tailrace_spark.sinks.sql.deferred import HELD_TABLES
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database, piece
from tests.unit.spark.sinks.sql.test_renames import named
from tests.unit.spark.sinks.sql.test_time import Time

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
    sink.write([piece([NOW.insert(("a",), ("b",), 1, v="x")], announced=5)])
    sink.close()
    assert age(database, TABLES).announced == 5

    sink = SqlSink(database.url)
    sink.write([piece([FORMER.insert(("a",), ("c",), 2, v="y")], announced=4)])
    assert database.columns("shop_t") == ["kk", "c", "s", "v"]
    sink.write([piece([LATER.insert(("a",), ("d",), 3, w="z")], announced=6)])
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
    sink.write([piece([NOW.insert(("a",), ("b",), 1, v="x")], announced=5)])
    with database.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE shop_t__state RENAME TO elsewhere")
    assert sink.write([piece([NOW.insert(("a",), ("c",), 2, v="y")], announced=5)]).deferred == 1
    sink.close()
    age(database, HELD_TABLES)

    sink = SqlSink(database.url, clock=time)
    assert sink.write([piece([FORMER.insert(("a",), ("d",), 3, v="z")], announced=4)]).deferred == 1
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
    sink.write([piece([NOW.insert(("a",), ("b",), 1, v="x")])])
    sink.close()
    with database.engine.begin() as connection:
        connection.execute(sa.update(TABLES).values(definition='{"record": 2}'))
    sink = SqlSink(database.url)
    with pytest.raises(SettingsError, match="later version"):
        sink.write([piece([NOW.insert(("a",), ("c",), 2, v="y")])])
    sink.close()
    assert database.select("SELECT c FROM shop_t") == [("b",)]
    assert database.select("SELECT count(*) FROM tailrace_dead_letters") == [(0,)]
    assert database.select("SELECT count(*) FROM tailrace_held_changes") == [(0,)]
