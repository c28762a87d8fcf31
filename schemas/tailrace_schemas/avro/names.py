"""CQL names to Avro names, reversibly, and names that are unique within one schema."""

from __future__ import annotations

import json
import re
from typing import Final, Literal, assert_never

_OUTSIDE: Final = re.compile(r"^[0-9]|_(?=x)|[^A-Za-z0-9_]")
_ESCAPE: Final = re.compile(r"_x([0-9a-f]*)_")

BOUND_FIELDS: Final = ("count", "inclusive")
"""What an end of a range has behind its clustering columns (docs/contracts.md section 3)."""
Subjects = Literal["TopicName", "RecordName", "TopicRecordName"]
Part = Literal["value", "key"]


def avro_name(name: str) -> str:
    """The Avro name of a CQL identifier (docs/contracts.md section 3).

    Every character outside [A-Za-z0-9_], a leading digit, and the underscore of a literal `_x` become `_x`, the code
    point in lower-case hex, and `_`. An empty name becomes `_x_`.
    """
    return _OUTSIDE.sub(lambda match: f"_x{ord(match[0]):x}_", name) if name else "_x_"


def bound_name(name: str) -> str:
    """The Avro name of a clustering column in a range's end, whose own fields `count` and `inclusive` stand beside it.

    A column of such a name has its first letter escaped there, which no other column's name can be equal to.
    """
    field = avro_name(name)
    return f"_x{ord(field[0]):x}_{field[1:]}" if field in BOUND_FIELDS else field


def cql_name(name: str) -> str:
    """The CQL identifier that `avro_name` made this name of."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else "", name)


def namespace(prefix: str, keyspace: str, table: str) -> str:
    """The namespace of a table's schemas: each part escaped, a dotted prefix kept dotted."""
    return ".".join([*map(avro_name, prefix.split(".")), avro_name(keyspace), avro_name(table)])


class Names:
    """Hands out type names of one schema, each once: a second claim of a name gets `_2`, a third `_3`, and so on."""

    def __init__(self, reserved: tuple[str, ...]) -> None:
        self._taken: set[str] = set(reserved)

    def claim(self, proposed: str) -> str:
        """A free name, as near to `proposed` as can be; deterministic in the order of claims."""
        name, suffix = proposed, 1
        while name in self._taken:
            suffix += 1
            name = f"{proposed}_{suffix}"
        self._taken.add(name)
        return name


def subject_of(subjects: Subjects, topic: str, part: Part, schema: str) -> str:
    """The subject of a record schema (JSON) in a topic's values or keys."""
    match subjects:
        case "TopicName":
            return f"{topic}-{part}"
        case "RecordName":
            return _record_name(schema)
        case "TopicRecordName":
            return f"{topic}-{_record_name(schema)}"
        case other:
            assert_never(other)


def _record_name(schema: str) -> str:
    record = json.loads(schema)
    return f"{record['namespace']}.{record['name']}"
