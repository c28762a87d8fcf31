"""The change record as Avro: one schema per table shape, framed messages, and the way back to a change."""

from __future__ import annotations

from tailrace_schemas.avro.decode import decode
from tailrace_schemas.avro.encode import Encoder
from tailrace_schemas.avro.registry import (
    SchemaEntry,
    SchemaIds,
    announced_topics,
    entry_from_record,
    own_ids,
    schema_records,
)
from tailrace_schemas.avro.schema import PREFIX_SCHEMA

__all__ = [
    "PREFIX_SCHEMA",
    "Encoder",
    "SchemaEntry",
    "SchemaIds",
    "announced_topics",
    "decode",
    "entry_from_record",
    "own_ids",
    "schema_records",
]
