"""What stands before the Avro body of a message and names its schema (docs/contracts.md section 3).

C3 01 and the 8 bytes of the schema's own id, or 00 and the 4 bytes that a registry gave it: Confluent's wire format.
"""

from __future__ import annotations

from typing import Final

from tailrace_schemas.errors import CorruptError, TruncatedError

# Avro single-object encoding's marker.
FRAME: Final = b"\xc3\x01"
REGISTRY_FRAME: Final = b"\x00"

_HEADER: Final = len(FRAME) + 8
_REGISTRY_HEADER: Final = len(REGISTRY_FRAME) + 4

# The same in Spark's SQL, of a column `value`: the schema's id, and the body. Other bytes give what is no Avro of ours.
SCHEMA_ID_SQL: Final = "CASE WHEN startswith(value, X'00') THEN substring(value, 2, 4) ELSE substring(value, 3, 8) END"
BODY_SQL: Final = "CASE WHEN startswith(value, X'00') THEN substring(value, 6) ELSE substring(value, 11) END"


def frame(schema_id: bytes) -> bytes:
    """The head of a message with this schema: 4 bytes are a registry's id, 8 the schema's own."""
    if len(schema_id) not in (4, 8):
        raise ValueError(f"a schema id has 4 or 8 bytes, not {len(schema_id)}")
    return (REGISTRY_FRAME if len(schema_id) == 4 else FRAME) + schema_id


def body_at(message: bytes) -> int:
    """Where the Avro body begins. Raises TruncatedError or CorruptError for bytes that are not framed."""
    if message.startswith(REGISTRY_FRAME):
        header = _REGISTRY_HEADER
    elif message.startswith(FRAME[: len(message)]):
        header = _HEADER
    else:
        raise CorruptError(f"a message starts with {message[:2].hex()}, neither {FRAME.hex()} nor 00")
    if len(message) < header:
        raise TruncatedError(f"a message of {len(message)} bytes has no room for its {header}-byte header")
    return header


def message_schema_id(message: bytes) -> bytes:
    """The schema id of a framed message, 8 bytes, or a registry's 4. Raises as `body_at`."""
    body = body_at(message)
    return message[body - (4 if body == _REGISTRY_HEADER else 8) : body]


def reframed(message: bytes, schema_id: bytes) -> bytes:
    """The same body under another id of its schema. Raises as `body_at`."""
    return frame(schema_id) + message[body_at(message) :]
