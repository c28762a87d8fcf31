"""Names that a database cannot have, as the sink writes them: each column has one of its own, and its values."""

from __future__ import annotations

import json

import pytest

from tailrace_schemas.change import Change
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.sinks.sql.layout import ColumnNames
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database
from tests.unit.spark.sinks.hostile import FIELDS, HEALTHY, NAMES, hostile, row
from tests.unit.spark.sinks.merging_contract import selected
from tests.unit.spark.sinks.sql.writing import write


def columns_of(of: Table) -> list[str]:
    """As SELECT has them."""
    return [column.name for column in (*of.key, *of.static, *of.regular)]


@pytest.mark.slow
@pytest.mark.promise("sql.names")
@pytest.mark.parametrize("what", NAMES)
def test_every_column_reads_as_cql_does(database: Database, what: str) -> None:
    of = NAMES[what]
    changes = [*row(of), *row(of, 1000)]
    assert write(database, *changes, Log(HEALTHY).insert((1,), (), 1, v="a")).deferred == 0
    assert database.select("SELECT * FROM shop_hostile") == selected(of, changes, *columns_of(of))
    assert database.select("SELECT v FROM shop_plain") == [("a",)]
    assert write(database, *changes) == Summary(len(changes), 0, 0)
    again: list[Change] = row(of, 2000)
    write(database, *again)
    assert database.select("SELECT * FROM shop_hostile") == selected(of, [*changes, *again], *columns_of(of))


@pytest.mark.parametrize("what", FIELDS)
def test_every_field_has_its_value(database: Database, what: str) -> None:
    of = FIELDS[what]
    assert write(database, *row(of)) == Summary(1, 1, 0)
    [(text,)] = database.select("SELECT CAST(u AS TEXT) FROM shop_hostile")
    assert sorted(json.loads(text).values()) == [3, 4]


@pytest.mark.promise("sql.names")
def test_a_name_stays_when_columns_come(database: Database) -> None:
    first = hostile({"xmin": "int"}, regular={"b": "int"})
    second = hostile({"xmin": "int"}, regular={"B": "int", "b": "int", "xmax": "int"})
    write(database, Log(first).insert((1,), (), 1, b=2))
    write(database, Log(second).update((1,), (), 2, B=3, xmax=4))
    shown = {
        "sqlite": ("xmin", "b", "B_2", "xmax"),
        "postgresql": ("xmin_2", "b", "B_2", "xmax_2"),
        "mysql": ("xmin", "b", "B_2", "xmax"),
    }[database.dialect]
    columns = ", ".join(f'"{name}"' for name in shown)
    assert database.select(f"SELECT {columns} FROM shop_hostile") == [(1, 2, 3, 4)]


@pytest.mark.promise("sql.names")
@pytest.mark.parametrize(
    ("dialect", "name", "others", "wanted"),
    [
        ("postgresql", "xmin", (), "xmin_2"),
        ("postgresql", "xmin", ("xmin_2",), "xmin_3"),
        ("postgresql", "a\0b", (), "a_b"),
        ("postgresql", "a\0b", ("a_b",), "a_b_2"),
        ("postgresql", "", (), "_"),
        ("postgresql", "é", ("e",), "é"),
        ("postgresql", "__key", (), "__key_2"),
        ("sqlite", "xmin", (), "xmin"),
        ("sqlite", "rowid", (), "rowid"),
        ("mysql", "db_row_id", (), "db_row_id_2"),
        ("mysql", "é", ("E",), "é_2"),
        ("mysql", "ß", ("s",), "ß_2"),
        ("mysql", "a😀", (), "a_"),
        ("mysql", "a  ", (), "a__"),
        ("mysql", " a b", (), " a b"),
    ],
)
def test_the_rule(dialect: str, name: str, others: tuple[str, ...], wanted: str) -> None:
    names = ColumnNames(dialect, 63)
    assert names.claim(name, names.taken(others)) == wanted
