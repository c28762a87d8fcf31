"""What both halves of Tailrace agree on: CQL types, tables, change records, tokens, streams and topics.

For consumers of their own: `decode(message, schemas)` gives the change in a message of a table's topic, in either
framing. It looks schemas up in `Schemas` (docs/consuming.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace_schemas.avro.decode import decode
    from tailrace_schemas.avro.registry import SchemaEntry, Schemas, UnknownSchemaError
    from tailrace_schemas.change import Change

__all__ = ["Change", "SchemaEntry", "Schemas", "UnknownSchemaError", "decode"]

_HOMES = {
    "Change": "change",
    "SchemaEntry": "avro.registry",
    "Schemas": "avro.registry",
    "UnknownSchemaError": "avro.registry",
    "decode": "avro.decode",
}


def __getattr__(name: str) -> object:
    # Not imported with the package: every module of it would take fastavro along.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
