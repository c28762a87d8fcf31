"""User types of many leaves in sinks: written out only where that is small, and refused with a reason elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tailrace_schemas.cql.types import CqlType, leaves, parse_type
from tailrace_schemas.errors import UnsupportedError
from tailrace_schemas.table import Table
from tailrace_spark.merge.table_record import merge_definitions
from tailrace_spark.sinks.arrow.schema import arrow_schema, value_type
from tailrace_spark.sinks.opensearch.documents import Documents, render
from tailrace_spark.sinks.sql.types import json_value
from tests.support.large_types import FIELDS, nested, only

LARGE = only(nested(5))
(PLAIN,) = (column.type for column in LARGE.columns if column.name == "plain")


@pytest.mark.promise("sinks.millions-of-leaves")
@pytest.mark.parametrize(
    "shape",
    [arrow_schema, Documents, lambda table: [value_type(column.type) for column in table.columns]],
    ids=["history", "documents", "values"],
)
def test_formats_that_write_types_out_refuse(shape: Callable[[Table], object]) -> None:
    """The table whose column is too large, with its size; others are as before."""
    with pytest.raises(UnsupportedError, match=r"7593\d\d values in one another"):
        shape(LARGE)
    shape(only(nested(2)))


@pytest.mark.promise("sinks.millions-of-leaves")
def test_json_is_made_of_each_type_once() -> None:
    """What is not in a value costs nothing."""
    value: dict[str, object] = {f"f{number}": None for number in range(FIELDS)}
    assert json_value(PLAIN)(value) == value
    convert = render(PLAIN)
    assert convert is None or convert(value) == {}


def test_of_two_definitions_the_one_with_more_fields_holds() -> None:
    """However its types are shared."""
    wider = only(nested(5, FIELDS + 1))
    assert merge_definitions(LARGE, wider) == merge_definitions(wider, LARGE, second_newer=False)
    assert merge_definitions(LARGE, wider).columns == wider.columns
    assert leaves(parse_type("map<int, frozen<tuple<int, text>>>")) == 3
    assert leaves(CqlType("int")) == 1
