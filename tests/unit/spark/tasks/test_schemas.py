"""Schemas on their way to tasks."""

from __future__ import annotations

import pickle

import pytest

from tailrace_schemas.avro import Encoder, SchemaEntry, entry_from_record, own_ids, schema_records
from tailrace_spark.tasks.schemas import TaskSchemas
from tests.unit.tables import table

ORDERS = table({"id": "int"}, {"at": "timestamp"}, {"s": "text"}, {"lines": "map<int, frozen<list<text>>>"})


def entries() -> dict[bytes, SchemaEntry]:
    encoder = Encoder(ORDERS, "t")
    records = schema_records(encoder, "t.ks.t", own_ids(encoder))
    return {schema_id: entry_from_record(schema_id, value) for schema_id, value in records}


def test_what_arrives_is_what_was_sent_in_compiled_code_too() -> None:
    sent = entries()
    arrived: TaskSchemas = pickle.loads(pickle.dumps(TaskSchemas.of(sent)))  # noqa: S301 - our own
    assert dict(arrived) == sent
    assert [entry.announced for entry in arrived.values()] == [entry.announced for entry in sent.values()]


def test_an_entry_is_made_once_and_an_unknown_one_is_none() -> None:
    schemas = TaskSchemas.of(entries())
    assert all(schemas[schema_id] is schemas[schema_id] for schema_id in schemas)
    assert schemas.get(b"unheard-") is None
    with pytest.raises(KeyError):
        schemas[b"unheard-"]
