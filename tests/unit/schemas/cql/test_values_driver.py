"""Values of random nested types against cassandra-driver, which writes and reads them independently of us."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec
from tests.unit.schemas.cql.driver import comparable, from_bytes, to_bytes, typed_values


@pytest.mark.slow
@given(typed_values())
def test_the_driver_reads_what_is_written(case: tuple[CqlType, Any]) -> None:
    cql_type, value = case
    coder = codec(cql_type)
    data = to_bytes(cql_type, value)
    decoded = coder.decode(data)
    encoded = coder.encode(decoded)
    # The driver writes what Cassandra writes: vints and varints are minimal, nulls are -1.
    assert encoded == data
    assert comparable(cql_type, decoded) == from_bytes(cql_type, encoded)
