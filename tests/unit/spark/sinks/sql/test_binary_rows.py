"""Rows that are copied into PostgreSQL in binary are what it reads of the same values as text, whatever their types."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.cql.numeric import scaled_text
from tailrace_schemas.cql.scalars import address_text
from tailrace_schemas.cql.types import parse_type
from tailrace_schemas.errors import UnsupportedError
from tailrace_spark.sinks.sql.types import TYPES, SqlType, column_spec, to_sql
from tailrace_spark.sinks.state_store.binary_rows import binary_rows, forms_of
from tailrace_spark.sinks.state_store.bulk import insert
from tests.postgres import new_database


def integers(octets: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (8 * octets - 1)), (1 << (8 * octets - 1)) - 1)


WORDS: Final = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
UUIDS: Final = st.uuids().map(str)
PLAIN: Final[dict[str, st.SearchStrategy[Any]]] = {
    "boolean": st.booleans(),
    "tinyint": integers(1),
    "smallint": integers(2),
    "int": integers(4),
    "bigint": integers(8),
    "counter": integers(8),
    "float": st.floats(width=32),
    "double": st.floats(),
    "text": WORDS,
    "ascii": WORDS,
    "blob": st.binary(),
    "uuid": UUIDS,
    "timeuuid": UUIDS,
    "inet": st.one_of(st.integers(0, 2**32 - 1).map(IPv4Address), st.integers(0, 2**128 - 1).map(IPv6Address)).map(
        lambda address: address_text(address.packed)
    ),
    "varint": st.one_of(st.integers(), st.integers(-(10**700), 10**700)).map(lambda number: scaled_text(number, 0)),
    "decimal": st.builds(scaled_text, st.integers(-(10**40), 10**40), st.integers(-300, 300)),
    "timestamp": integers(8),
    "date": integers(4),
    "time": st.integers(0, 86_399_999_999_999),
    "duration": st.fixed_dictionaries({"months": st.integers(0, 9), "days": st.just(0), "nanoseconds": st.just(5)}),
    "list<int>": st.lists(integers(4)),
}
BOUND: Final = {kind: to_sql(parse_type(kind), "postgresql") for kind in PLAIN}
ROWS: Final = sa.Table(
    "copied",
    sa.MetaData(),
    sa.Column("by_copy", sa.Boolean),
    *[sa.Column(f"c_{kind}", SqlType(column_spec(parse_type(kind), "postgresql"))) for kind in PLAIN],
)


@pytest.fixture(scope="module")
def engine() -> Iterator[sa.Engine]:
    made = sa.create_engine(new_database())
    with made.begin() as connection:
        ROWS.create(connection)
    yield made
    made.dispose()


def as_text(connection: sa.Connection, *, by_copy: bool) -> list[tuple[Any, ...]]:
    columns = [sa.cast(column, sa.Text) for column in ROWS.columns if column.name != "by_copy"]
    return [tuple(row) for row in connection.execute(sa.select(*columns).where(ROWS.c.by_copy == by_copy))]


def test_all_types_are_here() -> None:
    assert {parse_type(kind).kind for kind in PLAIN} >= {kind for kind in TYPES if TYPES[kind][1] != "JSONB"}


@pytest.mark.slow
@given(plain=st.fixed_dictionaries({kind: st.none() | values for kind, values in PLAIN.items()}))
def test_a_row_is_what_its_text_is(engine: sa.Engine, plain: dict[str, Any]) -> None:
    bound = [None if plain[kind] is None else BOUND[kind](plain[kind]) for kind in PLAIN]
    names = [column.name for column in ROWS.columns]
    with engine.connect() as connection:
        connection.execute(ROWS.insert(), dict(zip(names, [False, *bound], strict=True)))
        insert(connection, ROWS, names, [(True, *bound)])
        assert as_text(connection, by_copy=True) == as_text(connection, by_copy=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unscaled", "scale"),
    [(1, 16_383), (12_345, 16_382), (1, -131_071), (0, -200_000), (0, 5), (10_000, 4), (1, 4), (9_999, -3), (-1, 1)],
)
def test_numbers_at_the_ends_of_numeric(engine: sa.Engine, unscaled: int, scale: int) -> None:
    text = scaled_text(unscaled, scale)
    with engine.connect() as connection:
        insert(connection, ROWS, ["by_copy", "c_decimal"], [(True, text)])
        as_read = sa.cast(sa.cast(sa.literal(text), sa.Numeric), sa.Text)
        [(copied, expected)] = connection.execute(sa.select(sa.cast(ROWS.c.c_decimal, sa.Text), as_read))
        assert copied == expected


@pytest.mark.parametrize(("unscaled", "scale"), [(1, 16_384), (1, -131_072), (1, -(2**31)), (1, 2**31 - 1)])
def test_a_number_that_numeric_does_not_hold_is_refused(unscaled: int, scale: int) -> None:
    with pytest.raises(UnsupportedError, match="NUMERIC holds no"):
        binary_rows(forms_of(["NUMERIC"]), [(scaled_text(unscaled, scale),)])
