"""Records as a task reads them of Kafka, and the schemas by which it understands them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tailrace_schemas.avro import Encoder, SchemaEntry


def entry_of(encoder: Encoder, topic: str = "t", announced: int = -1) -> SchemaEntry:
    """The schema of an encoder's values, published."""
    return SchemaEntry(
        schema_id=encoder.schema_id, topic=topic, table=encoder.table, avro=encoder.schema_text, announced=announced
    )


def schemas_of(encoder: Encoder, topic: str = "t") -> dict[bytes, SchemaEntry]:
    """The same, as they are looked up."""
    return {encoder.schema_id: entry_of(encoder, topic)}


def records_of(topic: str, values: Sequence[bytes | None], **more: pa.Array) -> pa.Table:
    """The records of partition 0 from offset 0 on, without streams, and with more columns."""
    count = len(values)
    columns = {
        "topic": pa.array([topic] * count, pa.string()),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        "value": pa.array(values, pa.binary()),
        "generation": pa.nulls(count, pa.int64()),
        "stream_id": pa.nulls(count, pa.binary()),
    }
    return pa.table({**columns, **more})
