from __future__ import annotations

import sqlite3
from pathlib import Path

from tailrace.demo.checkpoint import Checkpoint
from tailrace.demo.sqlite_file import SqliteFile


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
