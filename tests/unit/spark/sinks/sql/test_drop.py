"""What the SQL sink has made for tables goes when that is asked for; what others have made stays."""

from __future__ import annotations

from uuid import UUID

import sqlalchemy as sa

from tailrace_spark.sinks.sql.sink import SqlSink
from tests.unit.spark.cassandra import Log, truncate
from tests.unit.spark.sinks.contract import Database, piece
from tests.unit.tables import table

HOST = "11111111-0000-0000-0000-000000000000"
PLAIN = table({"id": "int"}, {"c": "int"}, {"s": "text"}, {"v": "text"}, keyspace="shop", name="plain")
OTHER = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="other", table_id=UUID(int=7))


def test_what_was_made_goes_and_everything_else_stays(database: Database) -> None:
    with database.engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE mine (id INT)"))
    sink = SqlSink(database.url)
    changes = [
        Log(PLAIN).insert((1,), (1,), 1, v="a"),
        Log(PLAIN).delete((2,), (1,), 1),
        Log(OTHER).insert((1,), (), 1, v="b"),
    ]
    sink.write([piece([*changes, truncate(PLAIN, HOST, 5)])])
    assert list(sink.drop([PLAIN])) == ["shop_plain"]
    assert list(sink.drop([PLAIN])) == []
    assert [name for name in database.names() if "plain" in name] == []
    assert {"mine", "shop_other", "shop_other__rows", "shop_other__state"} <= database.names()
    rows = {name: rows for name, rows in database.everything().items() if name.startswith("tailrace_")}
    assert [name for name, content in rows.items() if str(PLAIN.id) in str(content)] == []
    sink.write([piece([Log(PLAIN).insert((3,), (1,), 1, v="again")])])  # older than the truncation, which is forgotten
    assert database.select("SELECT id, v FROM shop_plain") == [(3, "again")]
    assert database.select("SELECT id, v FROM shop_other") == [(1, "b")]
    sink.close()
