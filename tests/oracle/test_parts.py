"""What the oracle is made of: told programs, one form of values, comparison, shrinking."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pytest
import sqlalchemy as sa

from tailrace_schemas.cql.types import parse_type
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.oracle.comparison import Answer, Downstream, Row, differ, differences
from tests.oracle.program import due, told, told_again
from tests.oracle.shrinking import shrink
from tests.oracle.values import key_of, normal
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import piece
from tests.unit.tables import table

PLAIN = table({"k": "int"}, {"c": "text"}, {"s": "int"}, {"v": "set<int>"}, keyspace="ks", name="t")


def test_a_told_statement_means_the_same_elsewhere_and_later() -> None:
    now = 1_700_000_000_000_000
    statement = f"UPDATE ks1.t USING TIMESTAMP {now - 5} SET v = '{now}' WHERE k = 1; DELETE x USING TIMESTAMP 1"
    line = told(statement, "ks1", now)
    assert line == f"UPDATE {{keyspace}}.t USING TIMESTAMP {{now-5}} SET v = '{now}' WHERE k = 1; " + (
        "DELETE x USING TIMESTAMP 1"
    )
    assert told_again(line, "ks1", now) == statement
    assert f"ks2.t USING TIMESTAMP {now + 2}" in told_again(line, "ks2", now + 7)


def test_ttls_are_chosen_as_a_statement_is_executed() -> None:
    statement = "INSERT INTO t (k) VALUES (1) USING TTL {until+10000}; UPDATE t USING TTL 5"
    assert due(statement, 100.9, 103.1) == "INSERT INTO t (k) VALUES (1) USING TTL 9997; UPDATE t USING TTL 5"
    assert told(statement, "ks1", 7) == statement == told_again(statement, "ks1", 9)


def test_what_is_compared_is_counted() -> None:
    assert Answer(PLAIN, tuple(ROWS)).counts == {"rows": 3, "cells": 4, "collections": 1}


def test_keys_of_equal_decimals_are_one() -> None:
    decimal = parse_type("decimal")
    one, other, third = (key_of(normal(text, decimal), decimal) for text in ("0.00", "0.000", "0.01"))
    assert one == other != third


NOON = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("cql_type", "values"),
    [
        ("set<int>", ("[1,3,2]", [3, 2, 1])),
        ("set<decimal>", ('["1.0"]', ["1.00"])),
        ("map<text, float>", ('{"a": 0.1, "b": 3}', {"b": 3.0, "a": 0.10000000149011612})),
        ("float", (0.1, 0.10000000149011612)),
        ("double", ("NaN", float("nan"))),
        ("decimal", ("1.50", Decimal("1.50"), Decimal("1.50").as_tuple())),
        ("varint", ("12345678901234567890", Decimal("12345678901234567890"))),
        ("boolean", (1, True)),
        ("timestamp", ("2024-02-29T12:00:00.000Z", NOON, NOON.replace(tzinfo=None))),
        ("inet", ("10.0.0.1", "10.0.0.1/32")),
        ("blob", (b"\x01", memoryview(b"\x01"))),
    ],
)
def test_values_of_all_drivers_have_one_form(cql_type: str, values: tuple[object, ...]) -> None:
    [form] = {normal(value, parse_type(cql_type)) for value in values}
    assert normal(None, parse_type(cql_type)) is None != form


@pytest.mark.parametrize(
    ("cql_type", "one", "other"),
    [
        ("decimal", "1.5", "1.50"),
        ("list<int>", "[1,2]", "[2,1]"),
        ("float", 0.1, 0.2),
        ("set<int>", "[1]", "[1,1]"),
        ("frozen<set<decimal>>", '["1.0"]', '["1.00"]'),
        ("text", "", None),
    ],
)
def test_other_values_stay_other(cql_type: str, one: object, other: object) -> None:
    assert normal(one, parse_type(cql_type)) != normal(other, parse_type(cql_type))


ROWS: list[Row] = [(1, "a", 5, (1, 2)), (1, "b", 5, None), (2, None, 7, None)]


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        (ROWS, []),
        (ROWS[::-1], []),
        (ROWS[1:], ["ks.t (1, 'a'): only in Cassandra"]),
        ([*ROWS, ROWS[0]], ["ks.t (1, 'a'): only in the sink: (5, (1, 2))"]),
        ([(1, "a", 6, (1, 2)), *ROWS[1:]], ["ks.t (1, 'a'): s is 5 in Cassandra, 6 in the sink"]),
    ],
)
def test_every_difference_is_told(stored: Sequence[Row], words: list[str]) -> None:
    assert [str(one) for one in differ(Answer(PLAIN, tuple(ROWS)), stored)] == words


def test_a_database_is_read_through_its_views(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'sink.db'}"
    database, log = Downstream(url), Log(PLAIN)
    assert database.rows(PLAIN) == []
    sink = SqlSink(url)
    write_here(sink, [piece([log.insert((1,), ("a",), 1, v={"=": None, 1: None, 2: None}), log.static((1,), 1, s=5)])])
    expected = Answer(PLAIN, ((1, "a", 5, None),))
    assert [one.words for one in differences([expected], database)] == []
    with sa.create_engine(url).begin() as connection:
        connection.exec_driver_sql("UPDATE ks_t__static SET s = 6")
    assert [one.words for one in differences([expected], database)] == ["s is 5 in Cassandra, 6 in the sink"]
    sink.close()
    database.close()


@pytest.mark.parametrize("wanted", [{"3"}, {"0", "19"}, {"4", "5", "11"}, set(map(str, range(20)))])
def test_what_is_not_needed_to_fail_is_left_out(wanted: set[str]) -> None:
    lines = [str(number) for number in range(20)]

    def fails(candidates: Sequence[Sequence[str]]) -> list[bool]:
        return [wanted <= set(candidate) for candidate in candidates]

    assert shrink(lines, fails) == [line for line in lines if line in wanted]
    assert shrink(lines, fails, lambda: False) == lines
