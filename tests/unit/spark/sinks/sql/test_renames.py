"""What the source renamed reads by its new name, whichever order the definitions arrive in."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tailrace_schemas.change import Change
from tailrace_schemas.cql.types import UserTypeDefinition, parse_type
from tailrace_schemas.table import Column, Table
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database, piece
from tests.unit.spark.sinks.sql.writing import named
from tests.unit.tables import table


def write(database: Database, *batches: tuple[int, Change]) -> None:
    """Micro-batches of one change each, its definition announced at this offset, through a sink of their own."""
    sink = SqlSink(database.url)
    try:
        for announced, change in batches:
            write_here(sink, [piece([change], announced=announced)])
    finally:
        sink.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("history", "columns"),
    [
        ([("k", "c")], ["k", "c", "s", "v"]),
        ([("k", "c"), ("kk", "c")], ["kk", "c", "s", "v"]),
        ([("k", "c"), ("c", "k")], ["c", "k", "s", "v"]),
        ([("k", "c"), ("k", "C"), ("k", "C", "c", "v")], ["k", "C", "s", "v", "c_2"]),
        ([("k", "c"), ("k", "C", "c", "v")], ["k", "C", "s", "v", "c_2"]),
        ([("k", "c"), ("kk", "c", "k", "v")], ["kk", "c", "s", "v", "k"]),
        ([("k", "c"), ("a", "b"), ("x", "y")], ["x", "y", "s", "v"]),
    ],
)
@pytest.mark.parametrize("at_once", [pytest.param(False, marks=pytest.mark.long), True])
def test_key_columns(database: Database, history: list[tuple[str, ...]], columns: list[str], at_once: bool) -> None:
    changes = [
        (offset, Log(named(*names)).insert((f"p{offset}",), ("q",), 1, v="x")) for offset, names in enumerate(history)
    ]
    for part in [changes] if at_once else [[one] for one in changes]:
        write(database, *part)
    assert database.columns("shop_t") == columns
    shown = [name for name in columns if name not in ("v", "c_2")]
    quoted = ", ".join(map(database.engine.dialect.identifier_preparer.quote, [*shown[:2], "v"]))
    expected = [(f"p{offset}", "q", "x") for offset in range(len(history))]
    assert database.select(f"SELECT {quoted} FROM shop_t")[: len(history)] == expected
    # Late copies by older definitions, as another agent sends them or the topics' beginning brings them.
    write(database, *reversed(changes))
    assert database.columns("shop_t") == columns


def test_the_newest_definition_may_come_first(database: Database) -> None:
    old, new = Log(named("k", "c")), Log(named("kk", "c", "k", "v"))
    write(database, (7, new.insert(("p",), ("q",), 1, v="x", k="y")), (3, old.insert(("p2",), ("q",), 1, v="x")))
    assert database.columns("shop_t") == ["kk", "c", "s", "k", "v"]
    assert database.select("SELECT kk, k FROM shop_t") == [("p", "y"), ("p2", None)]


def test_a_running_sink_takes_a_name_that_comes_back(database: Database) -> None:
    """Its definition is one that the sink has met already, announced later than the one in between."""
    old, new = Log(named("k", "c")), Log(named("k", "d"))
    sink = SqlSink(database.url)
    try:
        write_here(sink, [piece([old.insert(("p",), ("q",), 1, v="x")], announced=0)])
        write_here(sink, [piece([new.insert(("p",), ("r",), 2, v="y")], announced=1)])
        write_here(sink, [piece([old.insert(("p",), ("s",), 3, v="z")], announced=0)])
        assert database.columns("shop_t")[:2] == ["k", "d"]
        write_here(sink, [piece([old.insert(("p",), ("t",), 4, v="z")], announced=2)])
        assert database.columns("shop_t")[:2] == ["k", "c"]
        write_here(sink, [piece([new.insert(("p",), ("u",), 5, v="z")], announced=1)])
        assert database.columns("shop_t")[:2] == ["k", "c"]
    finally:
        sink.close()


def test_a_view_that_somebody_built_on_ours_survives(database: Database) -> None:
    if database.dialect != "postgresql":
        pytest.skip("the others bind views to names when they are read")
    write(database, (1, Log(named("k", "c")).insert(("p",), ("q",), 1, v="x")))
    with database.engine.begin() as connection:
        connection.exec_driver_sql("CREATE VIEW mine AS SELECT k, c FROM shop_t")
    write(database, (2, Log(named("c", "k", "v", "w")).insert(("p",), ("q",), 2, w="y")))
    assert database.select("SELECT c, k, v, w FROM shop_t") == [("p", "q", "x", "y")]
    assert database.select("SELECT k, c FROM mine") == [("p", "q")]


PLACES = table(
    {"id": "int"}, {"c": "int"}, {"s": "addr"}, {"a": "addr", "f": "frozen<addr>", "l": "list<frozen<addr>>"},
    keyspace="shop", name="t",
)  # fmt: skip


def retyped(definition: Table, *fields: str) -> Table:
    """The table with other names for the fields of `addr`; a fourth one is an int."""
    types = ("text", "int", "frozen<set<text>>", "int")[: len(fields)]
    known = {"addr": UserTypeDefinition("addr", fields, types)}
    texts = {"s": "addr", "a": "addr", "f": "frozen<addr>", "l": "list<frozen<addr>>"}

    def of(columns: tuple[Column, ...]) -> tuple[Column, ...]:
        return tuple(replace(column, type=parse_type(texts[column.name], known)) for column in columns)

    return replace(definition, static=of(definition.static), regular=of(definition.regular))


@pytest.mark.slow
def test_fields_of_user_types_in_rows_that_are_not_written_again(database: Database) -> None:
    log = Log(PLACES)
    home = {"street": "S", "zip": 5, "tags": None}
    rows = [log.insert((1,), (n,), 10, a={"=": None, "street": "S", "zip": 5}, f=home) for n in range(1200)]
    sink = SqlSink(database.url)
    write_here(sink, [piece(rows, announced=1), piece([log.static((1,), 10, s={"=": None, "zip": 7})], announced=1)])
    sink.close()
    other = Log(retyped(PLACES, "road", "zip", "tags", "flat"))
    write(database, (2, other.update((2,), (0,), 11, f={"road": "R", "zip": 6, "tags": None, "flat": 1})))
    write(database, (1, log.update((3,), (0,), 10, l={1: home})))  # a late copy by the old definition
    text = "CAST(a AS TEXT), CAST(f AS TEXT), CAST(l AS TEXT), CAST(s AS TEXT)"
    found = database.select(f"SELECT id, {text}, count(*) FROM shop_t GROUP BY id, {text}")
    plain = [(row[0], *(json.loads(cell) if isinstance(cell, str) else cell for cell in row[1:])) for row in found]
    shown = {"road": "S", "zip": 5, "tags": None, "flat": None}
    static = {"road": None, "zip": 7, "tags": None, "flat": None}
    assert plain == [
        (1, shown, shown, None, static, 1200),
        (2, None, {"road": "R", "zip": 6, "tags": None, "flat": 1}, None, None, 1),
        (3, None, None, [shown], None, 1),
    ]
