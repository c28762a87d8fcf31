"""The reader of `.schemas`: what is no schema is passed over, and said once."""

from __future__ import annotations

import logging

import pytest

from tailrace_common.topics.schemas import SchemaReader
from tailrace_schemas.avro import Encoder, schema_records
from tests.support.partition import Partition
from tests.unit.tables import table

GOOD = schema_records(Encoder(table({"k": "int"}), "p"), "p.ks.t")
BAD = [
    (b"12345678", b'{"definition": {"format": 2, "id": 5}, "part": "value", "topic": "t", "avro": {}, "format": 1}'),
    (b"23456789", b"[" * 100_000),
    (b"34567890", b"\xff"),
    (b"short", GOOD[0][1]),
    (b"45678901", b"\x1f\x8b"),
]


@pytest.mark.promise("agent.foreign-records")
def test_a_malformed_schema_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    """The others are read, and the log has its offset and what it means."""
    partition = Partition([*BAD, *GOOD])
    with caplog.at_level(logging.WARNING), SchemaReader({}, "p", partition=partition) as reader:
        reader.refresh()
        reader.refresh()
        assert set(reader) == {key for key, _ in GOOD}
        assert reader.malformed == len(BAD)
    assert [f"offset {offset} " in one.getMessage() for offset, one in enumerate(caplog.records)] == [True] * len(BAD)
    assert b"12345678".hex() in caplog.text
    assert "cannot be decoded until" in caplog.text


def test_a_schema_that_is_announced_again_has_the_later_offset() -> None:
    """It is the newest definition of its table once more. What it says stays, whatever comes under its id."""
    (value_id, value), (key_id, _) = GOOD
    partition = Partition(GOOD)
    with SchemaReader({}, "p", partition=partition) as reader:
        reader.refresh()
        first = reader[value_id]
        partition.append((value_id, value))
        partition.append((value_id, b"nonsense"))
        reader.refresh()
        assert (first.announced, reader[value_id].announced, reader[key_id].announced) == (0, 3, 1)
        assert reader[value_id].table is first.table
        assert reader.malformed == 0
