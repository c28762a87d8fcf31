"""The records of `<prefix>.schemas`: a schema's id to what a reader needs to decode, merge and route."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal

from tailrace_schemas.avro.encode import Encoder
from tailrace_schemas.errors import CorruptError, RecordTooLargeError
from tailrace_schemas.formats import MOST_UNPACKED, json_object, packed, require_format
from tailrace_schemas.table import Table
from tailrace_schemas.table_json import table_from_json, table_to_json

FORMAT: Final = 1


class UnknownSchemaError(KeyError):
    """A message names a schema id that is not in the mapping: read `<prefix>.schemas` to its end and try again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaEntry:
    """One published schema. `part` tells a value's schema from a key's; `avro` is its canonical text.

    `announced` is its record's offset in `.schemas`, where it was read from there: later definitions have larger ones.
    """

    schema_id: bytes
    topic: str
    table: Table
    avro: str
    part: Literal["value", "key"] = "value"
    announced: int = field(default=-1, compare=False)


def announced_topics(entries: Iterable[SchemaEntry]) -> dict[str, str]:
    """The topic of each "keyspace.table", by the last schema that was announced for it."""
    return {str(entry.table): entry.topic for entry in sorted(entries, key=lambda entry: entry.announced)}


@dataclass(frozen=True, slots=True)
class SchemaIds:
    """What names a table shape's two schemas in messages: 8 bytes each, or the 4 that a registry gave them."""

    value: bytes
    key: bytes


def own_ids(encoder: Encoder) -> SchemaIds:
    """The ids that the schemas have by themselves."""
    return SchemaIds(encoder.schema_id, encoder.key_schema_id)


def schema_records(encoder: Encoder, topic: str, ids: SchemaIds | None = None) -> list[tuple[bytes, bytes]]:
    """The (key, value) records that announce a table shape: its value schema and its key schema, under their own ids
    or `ids`. Raises RecordTooLargeError for a shape that no reader would take."""
    named = ids or own_ids(encoder)
    return [
        (named.value, _value(encoder, topic, encoder.schema_text, "value")),
        (named.key, _value(encoder, topic, encoder.key_schema_text, "key")),
    ]


def _value(encoder: Encoder, topic: str, text: str, part: str) -> bytes:
    table = encoder.table
    value = {
        "topic": topic,
        "table": str(table),
        "table_id": str(table.id),
        "part": part,
        "definition": table_to_json(table),
        "avro": json.loads(text),
        "format": FORMAT,
    }
    encoded = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    if len(encoded) > MOST_UNPACKED:
        raise RecordTooLargeError(f"It has {len(encoded)} bytes, and readers take {MOST_UNPACKED}")
    return packed(encoded)


@lru_cache(maxsize=4096)
def entry_from_record(key: bytes, value: bytes) -> SchemaEntry:
    """The entry of one record of `<prefix>.schemas`. Raises CorruptError for a record of another kind, whatever it is:
    anybody who may write to the topic can put anything there.

    All readers of a process have one object of it. For sinks keep what they make of a table by its identity, for good.
    Streams into one sink, one after the other, have readers of their own.
    """
    try:
        if len(key) not in (4, 8):
            raise ValueError(f"its key has {len(key)} bytes; a schema id has 8, or a registry's 4")
        parsed = json_object(value)
        require_format("the schema", parsed["format"], FORMAT, error=CorruptError)
        schema_part = parsed["part"]
        if schema_part not in ("value", "key"):
            raise ValueError(f"its part is {str(schema_part)[:40]!r}")
        return SchemaEntry(
            schema_id=key,
            topic=_text(parsed["topic"]),
            table=table_from_json(parsed["definition"]),
            avro=json.dumps(parsed["avro"], sort_keys=True, separators=(",", ":"), ensure_ascii=False),
            part="key" if schema_part == "key" else "value",
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise CorruptError(f"no record of a schema: {type(error).__name__}: {str(error)[:200]}") from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text is a {type(value).__name__}")
    return value


class Schemas(Mapping[bytes, SchemaEntry]):
    """Schemas as a consumer of its own learns them: fed with the records of `<prefix>.schemas`.

    Every schema that was added, by its id: the 8 bytes that a message names it by, or a registry's 4.

    `skipped` counts the records that are no schemas; whoever wrote them, they stop nothing.
    """

    def __init__(self) -> None:
        self._entries: dict[bytes, SchemaEntry] = {}
        self.skipped = 0

    def add(self, key: bytes | None, value: bytes | None) -> bool:
        """Take one record of the topic; whether it is a schema."""
        if key is None or value is None:
            return False
        try:
            self._entries.setdefault(key, entry_from_record(key, value))
        except CorruptError:
            self.skipped += 1
            return False
        return True

    def __getitem__(self, schema_id: bytes) -> SchemaEntry:
        return self._entries[schema_id]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
