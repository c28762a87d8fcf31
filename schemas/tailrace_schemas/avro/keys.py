"""The Kafka key of a message by the full primary key, taken out of the change's own bytes."""

from __future__ import annotations

import io
from typing import Any, Final

from fastavro import parse_schema, schemaless_reader

from tailrace_schemas.avro.formed import without_logical_types
from tailrace_schemas.avro.frames import body_at
from tailrace_schemas.avro.schema import value_schema
from tailrace_schemas.forms import PLAIN_FORMS, ValueForms
from tailrace_schemas.table import Table

# The fields before `key` in every change, and a null of `key`, which is a union.
_BEFORE: Final = 6
_NULL: Final = b"\x00"


class PrimaryKeys:
    """Cuts the Avro body of the primary key out of framed changes of one table shape.

    A change's field `key` has the same fields in the same order as the key's schema, so its bytes are the key's. The
    clustering columns are null where there is none: deletions of partitions and ranges, static rows.
    """

    def __init__(self, table: Table, prefix: str, forms: ValueForms = PLAIN_FORMS) -> None:
        schema = without_logical_types(value_schema(table, prefix, forms))
        fields: Any = schema["fields"]
        # A record's fields stand one after another: read with its first fields alone, the rest of the bytes are left.
        self._head = parse_schema({**schema, "fields": fields[:_BEFORE]})
        self._key = parse_schema({**schema, "fields": fields[: _BEFORE + 1]})

    def body(self, message: bytes) -> bytes | None:
        """The key's Avro body; None for a change without a key, a truncate."""
        start = self._end(message, self._head)
        if message[start : start + 1] == _NULL:
            return None
        return message[start + 1 : self._end(message, self._key)]

    @staticmethod
    def _end(message: bytes, schema: Any) -> int:
        buffer = io.BytesIO(message)
        buffer.seek(body_at(message))
        schemaless_reader(buffer, schema, None)
        return buffer.tell()
