"""Marks of records against exact arithmetic, for write times of any 64 bits."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.ring import Node, Ring
from tailrace_schemas.streams import build_generation
from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN
from tailrace_spark.streams.assign import LATENESS_SECONDS, assigned_here
from tailrace_spark.streams.lookup import StreamTable
from tests.unit.spark.sinks.hostile import WRITE_TIMES

TABLE: Final = StreamTable.of([build_generation(Ring((Node("a", "dc", (0,)),)), 1, timestamp=0, seed=0)])
PUBLISHED: Final = 1_760_000_000_000
EDGE: Final = (PUBLISHED - LATENESS_SECONDS * 1000) * 1000
TIMES: Final = st.sampled_from([*WRITE_TIMES, EDGE - 1, EDGE]) | st.integers(-(2**63) + 1, 2**63 - 1)


@given(TIMES, st.sampled_from([MIN_TOKEN, 0, MAX_TOKEN]), st.none() | st.just(PUBLISHED))
def test_late_is_what_was_published_long_after_its_write(written: int, token: int, published: int | None) -> None:
    """Without a time of Kafka: a row that was read, as if it was published when it was written."""
    at = written // 1000 if published is None else published
    head = {
        "op": "insert", "token": token, "written": written, "ttl": None, "expires": None, "digest": bytes(16),
        "topic": "t.shop.plain", "partition": 0, "offset": 0, "schema_id": bytes(8), "published": at, "value": b"",
    }  # fmt: skip
    [row] = assigned_here(pa.Table.from_pylist([head]), TABLE, "t").to_pylist()
    assert ("late" in row["marks"]) == (at * 1000 - written > LATENESS_SECONDS * 1_000_000)
    assert ("before_first" in row["marks"]) == (written < 0)
