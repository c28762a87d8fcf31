from __future__ import annotations

import sqlite3
from pathlib import Path

from tailrace.demo.checkpoint import Checkpoint
from tailrace.demo.sqlite_file import SqliteFile
from tailrace_schemas.streams import Assignment, StreamId
from tailrace_spark.sinks.sql.sink import SqlSink
from tailrace_spark.sinks.writing import write_here
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import piece
from tests.unit.tables import table

ORDERS = table(
    {"customer": "text"}, {"number": "int desc"}, {"s": "text"}, {"v": "text"}, keyspace="shop", name="orders"
)


def test_the_checkpoint_tells_what_the_sink_has(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert not Checkpoint(tmp_path).started
    assert checkpoint.ends() == {}
    for name in ("commits", "offsets"):
        (tmp_path / name).mkdir()
    assert checkpoint.started
    assert checkpoint.ends() == {}
    for batch, end in (("9", 7), ("10", 8), ("11", 9)):
        (tmp_path / "offsets" / batch).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"demo.shop.orders":{{"1":{end}}}}}')
    (tmp_path / "commits" / "9").write_text("v1\n{}")
    assert checkpoint.ends() == {("demo.shop.orders", 1): 7}
    (tmp_path / "commits" / "10").write_text("v1\n{}")
    (tmp_path / "commits" / ".11.tmp").write_text("")
    assert checkpoint.ends() == {("demo.shop.orders", 1): 8}


def test_rows_of_a_file_that_grows(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "copy.db")
    assert file.rows("shop_orders") == []
    assert file.count("shop_orders") == 0
    assert not file.path.exists()
    with sqlite3.connect(file.path) as connection:
        connection.execute("CREATE TABLE shop_orders (customer TEXT, number INTEGER)")
        connection.executemany("INSERT INTO shop_orders VALUES (?, ?)", [("ada", 1), ("ada", 2), ("bob", 1)])
    connection.close()
    assert file.count("shop_orders") == 3
    assert file.rows("shop_orders", {"customer": "ada", "number": 2}) == [{"customer": "ada", "number": 2}]
    assert len(file.rows("shop_orders", {"customer": "ada"})) == 2
    assert file.rows("shop_readings") == []
    file.spoil("shop_orders", "number", {"customer": "bob"})
    assert file.rows("shop_orders", {"customer": "bob"}) == [{"customer": "bob", "number": "spoiled"}]
    assert len(file.rows("shop_orders", {"customer": "ada", "number": 1})) == 1


def test_stream_ids_stand_where_the_sink_puts_them(tmp_path: Path) -> None:
    log, file = Log(ORDERS), SqliteFile(tmp_path / "copy.db")
    changes = [
        log.insert(("a",), (7,), 10, v="x"),
        log.static(("a",), 10, s="y"),
        log.delete_range(("a",), (5,), (3,), 10),
        log.delete(("a",), (6,), 10),
        log.delete_partition(("b",), 10),
    ]
    streams = [StreamId.of(token, 0, 0) for token in range(len(changes))]
    assert file.stream_id("shop_orders", changes[0]) is None
    sink = SqlSink(f"sqlite:///{file.path}")
    assigned = zip(changes, streams, strict=True)
    write_here(sink, (piece([change], Assignment(1, stream.value)) for change, stream in assigned))
    assert [file.stream_id("shop_orders", change) for change in changes] == [str(stream) for stream in streams]
    covered, whole = log.insert(("a",), (4,), 9, v="gone"), log.delete_partition(("a",), 11)
    assert file.stream_id("shop_orders", covered) == str(streams[2])
    write_here(sink, [piece([whole], Assignment(1, StreamId.of(9, 0, 0).value))])
    sink.close()
    found = {file.stream_id("shop_orders", change) for change in (*changes[:4], covered, whole)}
    assert found == {str(StreamId.of(9, 0, 0))}
