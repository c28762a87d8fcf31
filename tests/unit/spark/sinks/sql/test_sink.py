"""The SQL sink's contract: what SELECT returns, convergence, re-delivery, evolution, poison."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tailrace_schemas.change import Cell, Change
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.streams import Assignment
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import Piece, SinkProgress, Summary
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.sql.settings import SUFFIXES
from tailrace_spark.sinks.sql.sink import SqlSink
from tests import postgres
from tests.support.shop import ORDERS, PLAIN
from tests.unit.spark.cassandra import Log
from tests.unit.spark.rowstate.counters import Shard, context
from tests.unit.spark.sinks.contract import Database, delivered, piece
from tests.unit.spark.sinks.hostile import LONG_NAMES
from tests.unit.spark.sinks.sql.writing import write
from tests.unit.tables import table


def test_texts_of_every_script_go_in_whatever_the_database_is_made_for(database: Database) -> None:
    log = Log(PLAIN)
    texts = ["寿司", "Привет", "𝛑 😀", "café"]
    rows = [log.insert((number,), (), 10, v=text) for number, text in enumerate(texts)]
    assert write(database, *rows) == Summary(len(texts), len(texts), 0)
    assert database.select("SELECT * FROM shop_plain") == [(at, text, None) for at, text in enumerate(texts)]


def test_collections_statics_and_user_types(database: Database) -> None:
    log = Log(ORDERS)
    write(
        database,
        log.static(("ann",), 5, name="Ann", tags={"=": None, "b": "", "a": ""}),
        log.static(("bob",), 5, name="Bob"),
        log.insert(
            ("ann",), (19000, 2), 6,
            amount="1.10", lines={"=": None, 3: "c", 1: "a", 2: "b"}, counts={"=": None, "x": 1, "y": 2},
            ship={"=": None, "street": "S", "zip": 5},
        ),
        log.update(("ann",), (19000, 2), 7, lines={2: None, 9: "z"}, counts={"x": None}, ship={"zip": 6}),
        log.insert(("ann",), (19001, 1), 6, note="n"),
    )  # fmt: skip
    assert database.columns("shop_orders") == [
        "customer", "day", "number", "name", "tags", "amount", "counts", "lines", "note", "ship",
    ]  # fmt: skip
    rows = database.select(
        "SELECT customer, CAST(day AS TEXT), number, name, CAST(tags AS TEXT), CAST(amount AS TEXT), "
        'CAST(counts AS TEXT), CAST("lines" AS TEXT), note, CAST(ship AS TEXT) FROM shop_orders'
    )
    parsed = [tuple(json.loads(v) if isinstance(v, str) and v[0] in "[{" else v for v in row) for row in rows]
    assert parsed == [
        ("ann", "2022-01-08", 2, "Ann", ["a", "b"], "1.10", {"y": 2}, ["a", "c", "z"], None,
         {"street": "S", "zip": 6, "tags": None}),
        ("ann", "2022-01-09", 1, "Ann", ["a", "b"], None, None, None, "n", None),
        ("bob", None, None, "Bob", None, None, None, None, None, None),
    ]  # fmt: skip


@pytest.mark.slow
def test_a_large_partition_is_deleted_and_its_newer_rows_stay(database: Database) -> None:
    log = Log(ORDERS)
    write(database, *[log.insert(("a",), (1, number), 10 + number % 2, note="x") for number in range(1200)])
    write(database, log.delete_partition(("a",), 10))
    assert database.select("SELECT count(*) FROM shop_orders") == [(600,)]
    write(database, log.delete_partition(("a",), 11))
    assert database.select("SELECT count(*) FROM shop_orders") == [(0,)]
    assert database.select("SELECT count(*) FROM shop_orders__state") == [(1,)]


@pytest.mark.slow
def test_rows_of_the_widest_table_of_postgresql_change() -> None:
    columns = dict.fromkeys([f"v{number}" for number in range(1_597)], "int")
    log = Log(table({"id": "int"}, regular=columns, keyspace="shop", name="widest"))
    with closing(Database(postgres.new_database())) as database:
        for number in range(2):
            assert write(database, log.insert((1,), (), number, **{f"v{number}": number})) == Summary(1, 1)
        assert database.select("SELECT id, v0, v1 FROM shop_widest") == [(1, 0, 1)]


@pytest.mark.slow
def test_a_row_that_is_too_large_for_a_statement_holds_up_no_other(database: Database) -> None:
    log = Log(table({"id": "int"}, regular={"b": "blob"}, keyspace="shop", name="blobs"))
    zeros = bytes(9 << 20)  # PyMySQL writes a byte as two digits, and MariaDB takes 16 MiB
    refused = int(database.dialect == "mysql")
    rows = [log.insert((number,), (), 1, b=value) for number, value in enumerate((b"a", zeros, b"b"))]
    assert write(database, *rows) == Summary(3 - refused, 3 - refused, refused)
    assert database.select("SELECT id FROM shop_blobs") == [(0,), *[(1,)][refused:], (2,)]


OLD, NEW = Assignment(1_000, bytes(15) + b"\x01"), Assignment(2_000, bytes(15) + b"\x11")


def streams(database: Database) -> list[tuple[bytes, int, bytes]]:
    """(kind of state row, generation, stream id) of ORDERS."""
    rows = database.select("SELECT clustering, generation, stream_id FROM shop_orders__state")
    return sorted((bytes(clustering)[:1], generation, stream_id) for clustering, generation, stream_id in rows)


def test_the_state_says_which_stream_wrote_the_newest_of_it(database: Database) -> None:
    log = Log(ORDERS)
    sink = SqlSink(database.url)
    old = [
        log.insert(("a",), (1, 1), 10, note="x"),
        log.static(("a",), 10, name="A"),
        log.delete_range(("a",), (2,), (3,), 10),
        log.delete_partition(("a",), 5),
    ]
    new = [
        log.update(("a",), (1, 1), 11, amount="1"),
        log.static(("a",), 9, name="late"),
        log.delete_range(("a",), (2,), (3,), 11),
        log.delete_partition(("a",), 6),
    ]
    write_here(sink, [piece(old, OLD)])
    assert streams(database) == [(kind, *OLD) for kind in (b"\x00", b"\x01", b"\x02", b"\x03")]
    write_here(sink, [piece(new, NEW)])
    kept = {b"\x00": NEW, b"\x01": OLD, b"\x02": NEW, b"\x03": NEW}
    assert streams(database) == [(kind, *assignment) for kind, assignment in kept.items()]
    assert write_here(sink, [piece(old, OLD), piece(new, NEW)]).rows == 0
    assert streams(database) == [(kind, *assignment) for kind, assignment in kept.items()]
    sink.close()


def test_counters_are_totals(database: Database) -> None:
    clicks = table({"id": "int"}, regular={"n": "counter"}, keyspace="shop", name="clicks")
    clicks = replace(clicks, flags=frozenset({"counter"}))

    def change(at: int, shard: Shard) -> Change:
        cell = Cell(clicks.regular[0], None, at, None, None, context(shard))
        return replace(Log(clicks).update((1,), (), at), cells=(cell,))

    first = change(1, Shard(1, 1, 5, "remote"))
    write(database, first, change(2, Shard(2, 1, 2**40, "remote")))
    write(database, change(3, Shard(1, 2, -7, "remote")), first)
    assert database.select("SELECT * FROM shop_clicks") == [(1, 2**40 - 7)]


def test_nothing_of_a_batch_stays_when_it_fails(database: Database) -> None:
    log = Log(PLAIN)
    sink = SqlSink(database.url)

    def broken() -> object:
        yield piece([log.insert((1,), (), 1, v="a")])
        raise ConnectionError("the source is gone")

    with pytest.raises(ConnectionError):
        write_here(sink, broken())  # type: ignore[arg-type]  # a generator that ends in an error
    if database.dialect != "mysql":  # which commits what makes tables
        assert database.names() == set()
    own_tables = {"tailrace_tables", "tailrace_formats", "tailrace_fences"}
    assert all(rows == [] for name, rows in database.everything().items() if name not in own_tables)
    write_here(sink, [piece([log.insert((1,), (), 1, v="a")])])
    assert database.select("SELECT v FROM shop_plain") == [("a",)]
    sink.close()


def test_a_static_column_is_added_to_a_table_without_one(database: Database) -> None:
    bare = table({"p": "int"}, {"c": "int"}, regular={"v": "int"}, keyspace="shop", name="bare")
    wider = table({"p": "int"}, {"c": "int"}, {"s": "int"}, {"v": "int"}, keyspace="shop", name="bare")
    write(database, Log(bare).insert((1,), (1,), 1, v=5))
    write(database, Log(wider).static((1,), 2, s=9))
    assert database.columns("shop_bare") == ["p", "c", "s", "v"]
    assert database.select("SELECT * FROM shop_bare") == [(1, 1, 9, 5)]


def test_a_row_goes_with_the_column_that_kept_it_though_that_showed_nothing(database: Database) -> None:
    """A value of no bytes is null to every database, and to Cassandra a row is there by it."""
    log = Log(PLAIN)
    kept = log.update((1,), (), 10, w=1)
    kept = replace(kept, cells=(replace(kept.cells[0], value=b""),))
    write(database, kept, log.update((2,), (), 10, w=1), log.insert((3,), (), 10))
    assert database.select("SELECT * FROM shop_plain") == [(1, None, None), (2, None, 1), (3, None, None)]
    gone = table({"id": "int"}, regular={"v": "text"}, dropped={"w": ("int", 20)}, keyspace="shop", name="plain")
    write(database, Log(gone).update((4,), (), 30, v="c"))
    assert database.select("SELECT * FROM shop_plain") == [(3, None), (4, "c")]


AGAIN = replace(PLAIN, id=UUID("1b255f4d-ef25-11ef-8e5c-9d0d1c0b8f00"))
"""A later table of that name, whose id has an earlier time."""


def follow(sink: SqlSink, change: Change, announced: int) -> Summary:
    """A micro-batch of one change, by a definition of that place."""
    return write_here(sink, [Piece((delivered(change, announced=announced),))])


@pytest.fixture
def keeping(database: Database) -> Iterator[SqlSink]:
    """A sink that keeps the rows of tables that were dropped."""
    sink = SqlSink(database.url)
    yield sink
    sink.close()


def test_a_table_made_again_keeps_the_old_rows_aside(database: Database, keeping: SqlSink) -> None:
    follow(keeping, Log(PLAIN).insert((1,), (), 1, v="old"), 3)
    follow(keeping, Log(AGAIN).insert((2,), (), 2, v="new"), 4)
    follow(keeping, Log(PLAIN).insert((3,), (), 1, v="late"), 3)
    assert database.select("SELECT id FROM shop_plain") == [(2,)]
    assert database.select("SELECT id FROM shop_plain__dropped_2be43760") == [(1,), (3,)]


@pytest.mark.promise("sql.names")
def test_the_longest_name_says_too_that_its_table_was_dropped(database: Database, keeping: SqlSink) -> None:
    first, other = LONG_NAMES
    again = replace(first, id=AGAIN.id)
    for announced, of in enumerate((first, other, again)):
        follow(keeping, Log(of).insert((announced,), (), 1, v="a"), announced)
    views = [name for name in database.names() if name.startswith("kkk") and not name.endswith(SUFFIXES)]
    [dropped] = [name for name in views if name.endswith(f"__dropped_{first.id.hex[:8]}")]
    assert len(views) == 3
    assert database.select(f"SELECT id FROM {dropped}") == [(0,)]


def test_an_earlier_table_that_is_seen_later_does_not_take_the_name(database: Database, keeping: SqlSink) -> None:
    follow(keeping, Log(AGAIN).insert((2,), (), 2, v="new"), 4)
    follow(keeping, Log(PLAIN).insert((1,), (), 1, v="old"), 3)
    assert database.select("SELECT id FROM shop_plain") == [(2,)]
    assert database.select("SELECT id FROM shop_plain__dropped_2be43760") == [(1,)]


def test_a_table_that_is_created_again_with_its_id_takes_its_name_back(database: Database, keeping: SqlSink) -> None:
    follow(keeping, Log(PLAIN).insert((1,), (), 1, v="old"), 3)
    follow(keeping, Log(AGAIN).insert((2,), (), 2, v="new"), 4)
    follow(keeping, Log(PLAIN).insert((3,), (), 3, v="back"), 5)
    follow(keeping, Log(AGAIN).insert((4,), (), 3, v="late"), 4)
    assert database.select("SELECT id FROM shop_plain") == [(1,), (3,)]
    assert database.select("SELECT id FROM shop_plain__dropped_1b255f4d") == [(2,), (4,)]
    assert not [name for name in database.names() if name.endswith("2be43760")]


def test_the_rows_of_a_dropped_table_go_where_that_is_wanted(database: Database) -> None:
    sink = SqlSink(database.url, on_drop="clear")
    write_here(sink, [piece([Log(PLAIN).insert((1,), (), 1, v="old"), Log(PLAIN).delete_partition((9,), 1)])])
    follow(sink, Log(AGAIN).insert((2,), (), 2, v="new"), 4)
    # What comes late of the old one is wanted no more, of whichever process.
    assert follow(sink, Log(PLAIN).insert((3,), (), 3, v="late"), 3) == Summary(1, 0)
    sink.close()
    sink = SqlSink(database.url, on_drop="clear")
    assert follow(sink, Log(PLAIN).insert((3,), (), 3, v="late"), 3) == Summary(1, 0)
    assert database.select("SELECT id, v FROM shop_plain") == [(2, "new")]
    assert database.select("SELECT table_id FROM tailrace_tables") == [(str(AGAIN.id),)]
    assert [name for name in database.names() if "dropped" in name] == []
    follow(sink, Log(PLAIN).insert((5,), (), 5, v="back"), 5)
    sink.close()
    assert database.select("SELECT id, v FROM shop_plain") == [(5, "back")]


def test_a_table_made_again_gets_another_name_where_that_is_wanted(database: Database) -> None:
    sink = SqlSink(database.url, on_drop="new-table")
    follow(sink, Log(PLAIN).insert((1,), (), 1, v="old"), 3)
    follow(sink, Log(AGAIN).insert((2,), (), 2, v="new"), 4)
    follow(sink, Log(PLAIN).insert((3,), (), 3, v="late"), 5)
    sink.close()
    assert database.select("SELECT id FROM shop_plain") == [(1,), (3,)]
    assert database.select("SELECT id FROM shop_plain_2") == [(2,)]


def test_names_that_sql_folds_or_that_are_ours(database: Database) -> None:
    odd = table(
        {"Id": "int"}, {"id": "int"}, regular={"__key": "int", 'a"b%': "int"}, keyspace="K%", name='T"x' + "y" * 60
    )
    write(database, Log(odd).insert((1,), (2,), 1, **{"__key": 3, 'a"b%': 4}))
    view = next(name for name in database.names() if name.startswith("K%") and "__" not in name)
    quoted = database.engine.dialect.identifier_preparer.quote(view)
    assert database.select(f"SELECT * FROM {quoted}") == [(1, 2, 3, 4)]
    assert database.columns(quoted) == ["Id", "id_2", "__key_2", 'a"b%']


def named(number: int, name: str, **columns: str) -> Table:
    """A table `shop.<name>` with an id of its own."""
    return table({"id": "int"}, regular=columns or {"v": "text"}, keyspace="shop", name=name, table_id=UUID(int=number))


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        ("x", "x__rows"), ("x", "x__state"), ("x", "x__static"), ("x", "x__by_key"), ("x", "X__Rows"),
        ("x", "x__state_pkey"), ("x", "x__rows", "x__rows__state"), ("x", "x_2", "x__rows_2", "x__rows"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("turned", [False, pytest.param(True, marks=pytest.mark.long)])
def test_tables_named_like_those_of_another(database: Database, names: tuple[str, ...], turned: bool) -> None:
    arriving = list(enumerate(names))[:: -1 if turned else 1]
    logs = {name: Log(named(number, name)) for number, name in arriving}
    for name, log in logs.items():
        write(database, log.insert((1,), (), 1, v=name))
    quote = database.engine.dialect.identifier_preparer.quote
    followed = database.select("SELECT name FROM tailrace_tables")
    assert sorted(database.select(f"SELECT v FROM {quote(view)}")[0][0] for (view,) in followed) == sorted(names)
    # Their tables are made later where a column is added that needs one.
    for number, name in arriving:
        wider = table(
            {"id": "int"}, {"c": "int"}, {"s": "int"}, keyspace="shop", name=name, table_id=UUID(int=10 + number)
        )
        write(database, Log(wider).static((1,), 1, s=number))
    assert len(database.select("SELECT name FROM tailrace_tables")) == 2 * len(names)


def test_tables_named_like_those_of_the_sink_itself(database: Database) -> None:
    names = ("tailrace_tables", "tailrace_streams", "sqlite_stat1")
    for number, name in enumerate(names):
        write(database, Log(named(number, name)).insert((1,), (), 1, v=name), table="{table}")
    views = {view for (view,) in database.select("SELECT name FROM tailrace_tables")}
    kept = "_sqlite_stat1" if database.dialect == "sqlite" else "sqlite_stat1"
    assert views == {"tailrace_tables_2", "tailrace_streams_2", kept}


def why_deferred(database: Database) -> str:
    """Why changes wait, of the one table whose do."""
    [(reason,)] = database.select("SELECT reason FROM tailrace_deferred_tables")
    return str(reason)


def test_what_is_in_the_way_is_named_with_its_remedy(database: Database) -> None:
    with database.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE shop_plain (mine INTEGER)")
    change = Log(PLAIN).insert((1,), (), 1, v="a")
    assert write(database, change).deferred == 1
    assert re.search(r"shop_plain.* already exists.*: drop or rename that, or give ", why_deferred(database))
    with database.engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE shop_plain")
    assert write(database) == Summary()
    assert database.select("SELECT id, v FROM shop_plain") == [(1, "a")]
    with database.engine.begin() as connection:
        connection.exec_driver_sql("DROP VIEW shop_plain")
        connection.exec_driver_sql("DROP TABLE shop_plain__rows")
    assert write(database, Log(PLAIN).insert((2,), (), 1, v="b")).deferred == 1
    assert re.search(r"shop_plain__rows.*undo what changed them", why_deferred(database))


def test_the_last_of_each_stream_is_kept(database: Database) -> None:
    first, later = SinkProgress("s", 0, {("t.ks.t", 0): 5}), SinkProgress("s", 1, {("t.ks.t", 0): 9, ("t.ks.u", 3): 1})
    with closing(SqlSink(database.url)) as sink:
        assert sink.capabilities.progress is sink
        assert sink.progress("s") is None
        sink.keep_progress(later)
        sink.keep_progress(first)  # another life of its checkpoint: whatever was kept last holds
        sink.keep_progress(SinkProgress("other", 4, {}))
        assert sink.progress("s") == first
    with closing(SqlSink(database.url)) as sink:
        assert sink.progress("s") == first
        assert sink.progress("other") == SinkProgress("other", 4, {})
        sink.keep_progress(later)
        assert sink.progress("s") == later


def test_a_file_that_was_deleted_has_nothing_of_a_stream_in_the_same_process(tmp_path: Path) -> None:
    with closing(SqlSink(f"sqlite:///{tmp_path / 'sink.db'}")) as sink:
        sink.keep_progress(SinkProgress("s", 0, {}))
        for file in tmp_path.glob("sink.db*"):
            file.unlink()
        with pytest.raises(ServiceError, match="no such table"):
            sink.progress("s")
        assert sink.progress("s") is None
