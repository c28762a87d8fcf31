"""CQL values in SQL: exact, and stored by both databases as the table of `sql.types` says."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from math import isfinite
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.cql.types import CqlType, parse_type
from tailrace_schemas.errors import UnsupportedError
from tailrace_spark.sinks.calendar import civil, date_text, timestamp_text
from tailrace_spark.sinks.sql.types import SqlType, column_spec, duration_text, to_sql
from tests.unit.spark.sinks.contract import Database
from tests.unit.tables import ADDRESS

DAY = 86_400_000
UUID = "550e8400-e29b-41d4-a716-446655440000"
# (CQL type, plain value, as text in SQLite, as text in PostgreSQL)
VALUES: list[tuple[str, Any, str, str]] = [
    ("boolean", True, "1", "true"),
    ("tinyint", -128, "-128", "-128"),
    ("bigint", 2**63 - 1, str(2**63 - 1), str(2**63 - 1)),
    ("double", 0.1, "0.1", "0.1"),
    ("double", float("nan"), "NaN", "NaN"),
    ("double", float("-inf"), "-Inf", "-Infinity"),
    ("text", "é'\"", "é'\"", "é'\""),
    ("uuid", UUID, UUID, UUID),
    ("inet", "2001:db8::1", "2001:db8::1", "2001:db8::1/128"),
    ("varint", str(10**60), str(10**60), str(10**60)),
    ("decimal", "1.10", "1.10", "1.10"),
    ("decimal", "1E+3", "1E+3", "1000"),
    ("decimal", "-0.00000000000000000001", "-0.00000000000000000001", "-0.00000000000000000001"),
    ("timestamp", 0, "1970-01-01T00:00:00.000Z", "1970-01-01 00:00:00+00"),
    ("timestamp", -1, "1969-12-31T23:59:59.999Z", "1969-12-31 23:59:59.999+00"),
    ("timestamp", 253402300800000, "+10000-01-01T00:00:00.000Z", "10000-01-01 00:00:00+00"),
    ("timestamp", -62167219200001, "-0001-12-31T23:59:59.999Z", "0002-12-31 23:59:59.999+00 BC"),
    ("timestamp", 2**63 - 1, "+292278994-08-17T07:12:55.807Z", "infinity"),
    ("timestamp", -(2**63), "-292275055-05-16T16:47:04.192Z", "-infinity"),
    ("date", 17946, "2019-02-19", "2019-02-19"),
    ("date", -719529, "-0001-12-31", "0002-12-31 BC"),
    ("date", 2**31 - 1, "+5881580-07-11", "infinity"),
    ("time", 30, "00:00:00.000000030", "00:00:00.000000030"),
    ("duration", {"months": 1, "days": 3, "nanoseconds": 500}, "1mo3d500ns", "1mo3d500ns"),
    ("list<int>", [1, None, -3], "[1,null,-3]", "[1, null, -3]"),
    ("map<int, text>", [{"key": 2, "value": "b"}], '{"2":"b"}', '{"2": "b"}'),
    ("addr", {"street": "S", "zip": None, "tags": ["t"]}, '{"street":"S","zip":null,"tags":["t"]}', ""),
]
# In MySQL and MariaDB, where it is not the text of SQLite.
MYSQL: dict[tuple[str, str], str] = {
    ("timestamp", "0"): "1970-01-01 00:00:00.000",
    ("timestamp", "-1"): "1969-12-31 23:59:59.999",
    ("timestamp", "253402300800000"): "9999-12-31 23:59:59.999",
    ("timestamp", "-62167219200001"): "0001-01-01 00:00:00.000",
    ("timestamp", str(2**63 - 1)): "9999-12-31 23:59:59.999",
    ("timestamp", str(-(2**63))): "0001-01-01 00:00:00.000",
    ("date", "-719529"): "0001-01-01",
    ("date", str(2**31 - 1)): "9999-12-31",
}


@pytest.mark.parametrize(("cql", "value", "sqlite", "postgresql"), VALUES)
def test_a_value_is_stored(database: Database, cql: str, value: Any, sqlite: str, postgresql: str) -> None:
    cql_type = parse_type(cql, {"addr": ADDRESS})
    if database.dialect == "mysql" and isinstance(value, float) and not isfinite(value):
        with pytest.raises(UnsupportedError, match="have no"):
            to_sql(cql_type, database.dialect)(value)
        return
    table = sa.Table("v", sa.MetaData(), sa.Column("v", SqlType(column_spec(cql_type, database.dialect))))
    with database.engine.begin() as connection:
        table.create(connection)
        connection.execute(table.insert(), [{"v": to_sql(cql_type, database.dialect)(value)}])
        if database.dialect == "postgresql":
            connection.exec_driver_sql("SET LOCAL timezone = 'UTC'")
        text = "CHAR" if database.dialect == "mysql" else "TEXT"
        [stored] = connection.exec_driver_sql(f"SELECT CAST(v AS {text}) FROM v").scalars()
    expected = {"sqlite": sqlite, "postgresql": postgresql, "mysql": MYSQL.get((cql, str(value)), sqlite)}
    if cql == "addr":
        assert json.loads(stored) == value
    else:
        assert stored == expected[database.dialect]


@pytest.mark.parametrize(
    ("cql", "value", "expected"),
    [
        ("set<timestamp>", [0], '["1970-01-01T00:00:00.000Z"]'),
        ("list<decimal>", ["1.10"], '["1.10"]'),
        ("list<blob>", [b"\x00\xff"], '["0x00ff"]'),
        ("list<double>", [float("nan"), float("inf"), 1.5], '["NaN","Infinity",1.5]'),
        ("map<frozen<list<int>>, int>", [{"key": [1, 2], "value": 3}], '{"[1, 2]":3}'),
        ("frozen<tuple<int, text>>", {"f0": 1, "f1": None}, "[1,null]"),
        ("vector<float, 2>", [0.5, 1.0], "[0.5,1.0]"),
    ],
)
def test_json(cql: str, value: object, expected: str) -> None:
    assert to_sql(parse_type(cql), "sqlite")(value) == expected


@given(st.dates())
def test_dates_are_datetimes_where_it_has_them(day: date) -> None:
    days = (day - date(1970, 1, 1)).days
    assert civil(days) == (day.year, day.month, day.day)
    assert date_text(days) == day.isoformat()


@given(st.integers(-62135596800000, 253402300799999))
def test_timestamps_are_datetimes_where_it_has_them(milliseconds: int) -> None:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    assert timestamp_text(milliseconds) == at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@given(st.integers(-(2**63), 2**63 - 1 - DAY))
def test_days_follow_one_another(milliseconds: int) -> None:
    """Beyond datetime's years: the next day is another date, at the same time of day."""
    here, there = timestamp_text(milliseconds), timestamp_text(milliseconds + DAY)
    assert here.partition("T")[2] == there.partition("T")[2]
    assert here.partition("T")[0] != there.partition("T")[0]


@pytest.mark.parametrize(("value", "text"), [((0, 0, 0), "0ns"), ((-1, 0, -5), "-1mo5ns"), ((14, 2, 0), "14mo2d")])
def test_durations(value: tuple[int, int, int], text: str) -> None:
    assert duration_text(dict(zip(("months", "days", "nanoseconds"), value, strict=True))) == text


def test_every_type_has_a_column() -> None:
    for kind in ("custom", "empty", "blob"):
        assert column_spec(CqlType(kind), "sqlite") == "BLOB"
        assert column_spec(CqlType(kind), "postgresql") == "BYTEA"
        assert column_spec(CqlType(kind), "mysql") == "LONGBLOB"
