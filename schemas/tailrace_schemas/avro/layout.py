"""How the bytes of a schema's records are laid out: its types without names and properties, so that two compare."""

from __future__ import annotations

from typing import Any


def layout(schema: Any) -> object:
    """What stands where in the bytes: records with the names of their fields, unions, arrays, and Avro's own types.

    Equal for schemas whose records have the same bytes. Logical types and names of types are no part of it.
    """
    return _Layout().of(schema)


class _Layout:
    """Walks a schema; named types are known from where they are first met."""

    def __init__(self) -> None:
        self._named: dict[str, object] = {}

    def of(self, schema: Any) -> object:
        if isinstance(schema, str):
            return self._named.get(schema, schema)
        if isinstance(schema, list):
            return "union", tuple(self.of(member) for member in schema)
        kind = schema["type"]
        if kind == "array":
            return "array", self.of(schema["items"])
        if kind == "record":
            of_record: object = ("record", tuple((field["name"], self.of(field["type"])) for field in schema["fields"]))
        elif kind == "enum":
            of_record = ("enum", tuple(schema["symbols"]))
        elif kind == "fixed":
            of_record = ("fixed", schema["size"])
        else:
            return self.of(kind)
        self._named[schema["name"]] = of_record
        return of_record
