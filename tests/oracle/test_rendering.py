from __future__ import annotations

import datetime
from collections import OrderedDict
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from cassandra.util import Date, Duration, Time

from tailrace_schemas.cql.types import UserTypeDefinition, parse_type
from tests.oracle.values import answered, normal

ADDRESS = UserTypeDefinition("address", ("street", "code"), ("text", "int"))
ID = "550e8400-e29b-41d4-a716-446655440000"


class Address(NamedTuple):
    """As the driver returns user types."""

    street: str
    code: int | None


# type, what SELECT returns, what the SQLite file must hold
EQUAL: list[tuple[str, Any, Any]] = [
    ("int", None, None),
    ("boolean", True, 1),
    ("bigint", -(2**63), -(2**63)),
    ("double", float("nan"), "NaN"),
    ("double", float("inf"), float("inf")),
    ("varint", 2**70, str(2**70)),
    ("decimal", Decimal("1.500"), "1.500"),
    ("decimal", Decimal("1E+3"), "1E+3"),
    ("text", "", ""),
    ("blob", b"\x00\xff", b"\x00\xff"),
    ("uuid", UUID(ID), ID),
    ("inet", "2001:db8::1", "2001:db8::1"),
    ("timestamp", datetime.datetime(1969, 12, 31, 23, 59, 59, 1000), "1969-12-31T23:59:59.001Z"),  # noqa: DTZ001
    ("date", Date(-1), "1969-12-31"),
    ("date", Date(2_932_896), "9999-12-31"),
    ("date", Date(2_932_897), "+10000-01-01"),
    ("date", Date(2**31 - 1), "+5881580-07-11"),
    ("date", Date(-719_528), "0000-01-01"),
    ("date", Date(-719_529), "-0001-12-31"),
    ("frozen<list<date>>", [Date(2_932_897)], '["+10000-01-01"]'),
    ("time", Time(1), "00:00:00.000000001"),
    ("duration", Duration(15, 3, 500), "15mo3d500ns"),
    ("duration", Duration(-2, 0, 0), "-2mo"),
    ("duration", Duration(0, 0, 0), "0ns"),
    ("list<text>", ["b", "a"], '["b","a"]'),
    ("frozen<map<int, text>>", OrderedDict([(1, "x")]), '{"1":"x"}'),
    ("vector<float, 2>", [0.5, -1.0], "[0.5,-1.0]"),
    ("tuple<int, text>", (1, None), "[1,null]"),
    ("address", Address("Mill Lane", None), '{"street":"Mill Lane","code":null}'),
    ("frozen<list<decimal>>", [Decimal("1.50")], '["1.50"]'),
    ("frozen<set<blob>>", [b"\x01"], '["0x01"]'),
]

# the same, but not equal
DIFFERENT: list[tuple[str, Any, Any]] = [
    ("decimal", Decimal("1.50"), "1.5"),
    ("int", 0, None),
    ("text", "", None),
    ("double", 0.1, 0.10000000000000002),
    ("list<text>", ["b", "a"], '["a","b"]'),
    ("address", Address("Mill Lane", None), '{"street":"Mill Lane","code":0}'),
]


@pytest.mark.parametrize(("text", "selected", "stored"), EQUAL)
def test_equal_values(text: str, selected: Any, stored: Any) -> None:
    cql_type = parse_type(text, {"address": ADDRESS})
    assert answered(selected, cql_type) == normal(stored, cql_type)


@pytest.mark.parametrize(("text", "selected", "stored"), DIFFERENT)
def test_different_values(text: str, selected: Any, stored: Any) -> None:
    cql_type = parse_type(text, {"address": ADDRESS})
    assert answered(selected, cql_type) != normal(stored, cql_type)
