"""What several modules of tests share of schemas."""

from __future__ import annotations

from tailrace_schemas.avro import Encoder, SchemaEntry, entry_from_record, own_ids, schema_records
from tests.unit.tables import table

ORDERS = table({"id": "int"}, {"at": "timestamp"}, {"s": "text"}, {"lines": "map<int, frozen<list<text>>>"})


def entries() -> dict[bytes, SchemaEntry]:
    encoder = Encoder(ORDERS, "t")
    records = schema_records(encoder, "t.ks.t", own_ids(encoder))
    return {schema_id: entry_from_record(schema_id, value) for schema_id, value in records}
