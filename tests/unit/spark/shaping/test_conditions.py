"""What is asked of rows: told apart from the rest, refused where it cannot be, evaluated as SQL has it."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.errors import SettingsError
from tailrace_schemas.table import Table
from tailrace_spark.merge.condition import RowPredicate, filter_of
from tailrace_spark.shaping.conditions import LONGEST, split_conditions
from tests.unit.tables import table

TABLE = table(
    {"id": "int"},
    regular={
        "total": "int", "big": "varint", "price": "decimal", "rate": "double", "name": "text", "day": "date",
        "at": "timestamp", "ok": "boolean", "who": "uuid", "tags": "set<text>", "My Col": "int", "bytes": "blob",
        "took": "time", "host": "inet",
    },
    keyspace="shop", name="t",
)  # fmt: skip


def holds(where: str, of: Table = TABLE, **values: Any) -> bool:
    rows, rest = split_conditions({"shop.*": where}, "stream.where")
    assert rest == ()
    row_filter = filter_of(pickle.loads(pickle.dumps(rows)), of)  # noqa: S301 - our own; as it goes to executors
    assert row_filter is not None
    predicate = RowPredicate(row_filter, of)
    return predicate.holds([values.get(column.name) for column in predicate.columns])


@pytest.mark.parametrize(
    ("where", "values", "result"),
    [
        ("row.total > 5", {"total": 6}, True),
        ("row.total > 5", {"total": None}, False),
        ("NOT row.total > 5", {"total": None}, False),
        ("row.total > 5 OR row.ok", {"ok": True}, True),
        ("NOT (row.total > 5 AND row.ok)", {"ok": False}, True),
        ("row.total <> 1.5", {"total": 1}, True),
        ("row.big = 100000000000000000000", {"big": "100000000000000000000"}, True),
        ("row.price = 1.5", {"price": "1.50"}, True),
        ("row.price > -0.01", {"price": "-0.02"}, False),
        ("row.rate = 0.1", {"rate": 0.1}, True),
        ("row.rate > 1e300", {"rate": float("nan")}, True),
        ("row.name LIKE 'a_c%'", {"name": "abc\nd"}, True),
        ("row.name LIKE 'a.c'", {"name": "abc"}, False),
        ("row.name IN ('x', 'y')", {"name": "y"}, True),
        ("row.name NOT IN ('x', 'y')", {"name": None}, False),
        ("row.name NOT IN ('x', 'y')", {"name": "z"}, True),
        ("row.name NOT LIKE 'a%'", {"name": "abc"}, False),
        ("row.name NOT LIKE 'a%'", {"name": "bc"}, True),
        ("row.total NOT BETWEEN 1 AND 3", {"total": 2}, False),
        ("row.bytes = X'00FF' AND row.took < 1000000", {"bytes": b"\0\xff", "took": 5}, True),
        ("row.host = '10.0.0.1'", {"host": "10.0.0.1"}, True),
        ("row.host = '2001:DB8:0:0:0:0:0:1'", {"host": "2001:db8::1"}, True),
        ("row.host <> '0:0:0:0:0:0:0:1'", {"host": "::1"}, False),
        ("row.total > -5 AND row.total <= - 1L", {"total": -1}, True),
        ("row.day = DATE'1970-01-03'", {"day": 2}, True),
        ("row.at < TIMESTAMP'1970-01-01 01:00:00.0005+01:00'", {"at": 0}, True),
        ("row.at < TIMESTAMP'1970-01-01 00:00:00Z'", {"at": 0}, False),
        ("row.who = '6F9619FF-8B86-D011-B42D-00C04FC964FF'", {"who": "6f9619ff-8b86-d011-b42d-00c04fc964ff"}, True),
        ("row.`My Col` = 1 AND ROW.OK", {"My Col": 1, "ok": True}, True),
        ("7L > row.total AND row.total IS NOT NULL", {"total": 6}, True),
        ("row.name LIKE '%a_%%a'", {"name": "xabba"}, True),
        ("row.name LIKE '%a_%%a'", {"name": "xabb"}, False),
        # Where what does not fit is tried again letter by letter, this takes years.
        (f"row.name LIKE '{'%a' * 60}b'", {"name": "a" * 1000}, False),
    ],
)
def test_a_row_matches_where_its_values_make_it_true(where: str, values: dict[str, Any], result: bool) -> None:
    assert holds(where, **values) is result


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("row.total IS NULL", "goes missing by time alone"),
        ("NOT (row.total IS NOT NULL)", "goes missing by time alone"),
        ("NOT NOT row.total IS NULL", "goes missing by time alone"),
        ("row.total <=> 1", "is not one of its forms"),
        ("coalesce(row.total, 0) > 1", "COALESCE(row.total, 0) is a function"),
        ("row.total > rand()", "RAND() is a function"),
        ("row.total + 1 > 5", "row.total + 1 is no column"),
        ("row.total = row.big", "row.big is no constant"),
        ("row.total > (SELECT 1)", "has a query in it"),
        ("row.total IN (SELECT 1)", "has a query in it"),
        ("row.name = ${env:HOME}", "has a variable in it"),
        ("row.name LIKE 'a!%' ESCAPE '!'", "is not one of its forms"),
        ("row.name LIKE ANY ('a', 'b')", "is no constant"),
        ("row.name ILIKE 'a'", "is not one of its forms"),
        ("row.total BETWEEN SYMMETRIC 3 AND 1", "is not one of its forms"),
        ("row.total > CAST('x' AS INT)", "is no constant of a type that a filter has"),
        ("row.total = NULL", "NULL is no constant"),
        ("row.total > 1; row.ok", "is not one of its forms"),
        ("row.ok" + " AND row.ok" * LONGEST, "has at most"),
        ("NOT " * 101 + "row.ok", "more than 100 steps deep"),
        ("row.ok = " + "(" * 4000 + "1" + ")" * 4000, "it cannot be read"),
        ("row.total > 1 OR id = 1", "id is no row.NAME"),
        ("row.at > TIMESTAMP'2026-01-01 00:00:00'", "has no zone"),
        ("row.day > DATE'2026-02-30'", "is no date or time that there is"),
        ("row.total >", "is no expression of Spark SQL: something is missing behind '>' (column 11)"),
        ("row.total > 'a'", "compare it with a number"),
        ("row.name > 1", "compare it with a text in quotes"),
        ("row.day > '2026-01-01'", "compare it with a date, as DATE"),
        ("row.who < 'a'", "use = or <>"),
        ("row.who = 'a'", "row.who is uuid, and 'a' is none"),
        ("row.host IN ('10.0.0.1', '10.0.0.300')", "row.host is inet, and '10.0.0.300' is none"),
        ("row.total LIKE 'a'", "LIKE is for text"),
        ("row.tags = 'a'", "row.tags is set<text>"),
        ("row.id = 1", "no column row.id; it may ask for row.My Col"),
    ],
)
def test_what_cannot_be_asked_says_why(where: str, says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        holds(where)
    assert says in str(refused.value)
    assert 'stream.where "shop.*"' in str(refused.value)


def test_static_columns_stand_beside_rows() -> None:
    with pytest.raises(SettingsError, match="a table with static columns"):
        holds("row.v = 1", table({"id": "int"}, {"c": "int"}, {"s": "int"}, {"v": "int"}, keyspace="shop", name="s"))


def test_the_parts_of_a_condition_go_where_they_can_be_asked() -> None:
    rows, rest = split_conditions(
        {"a.*": "row.v > 1 AND (id = 3 OR change.op = 'insert') AND country = 'DE'", "b.*": "id = 1", "*": "row.v < 3"},
        "where",
    )
    assert [(pattern, of is not None) for pattern, of in rows] == [("a.*", True), ("b.*", False), ("*", True)]
    assert [(pattern, of and of.parts) for pattern, of in rest] == [
        (
            "a.*",
            (
                (
                    "any",
                    (
                        ("compare", "=", ("id",), ("number", "3")),
                        ("compare", "=", ("change", "op"), ("text", "insert")),
                    ),
                ),
                ("compare", "=", ("country",), ("text", "DE")),
            ),
        ),
        ("b.*", (("compare", "=", ("id",), ("number", "1")),)),
        ("*", None),
    ]
    assert split_conditions({"a.*": "name = 'row.x'"}, "where")[0] == ()
    assert filter_of(rows, replace(TABLE, keyspace="b")) is None  # the first pattern that matches counts


atoms = st.sampled_from(
    ["row.total > 1", "row.total <> 2", "row.ok", "row.name LIKE 'a%'", "row.total IN (1, 3)", "row.name >= 'b'"]
)
conditions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=6,
)


@given(
    conditions,
    st.fixed_dictionaries(
        {
            "total": st.sampled_from([None, 1, 2, 3]),
            "ok": st.sampled_from([None, True, False]),
            "name": st.sampled_from([None, "a", "b"]),
        }
    ),
    st.sampled_from(["total", "ok", "name"]),
)
def test_no_row_begins_to_match_as_a_value_goes(where: str, values: dict[str, Any], name: str) -> None:
    """What a store rests on: by expiry and deletions alone rows only cease to match."""
    assert holds(where, **values) or not holds(where, **{**values, name: None})
