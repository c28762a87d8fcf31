"""DDL and TRUNCATE as events: what a record of `<prefix>.schema-changes` says (contracts.md 1)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from tailrace_schemas.errors import TailraceError
from tailrace_schemas.formats import json_object, packed, require_format
from tailrace_schemas.position import Position, position_from_json, position_to_json
from tailrace_schemas.table import Column, Table
from tailrace_schemas.table_json import table_from_json, table_to_json

FORMAT: Final = 1
# What of `changed` is left of an event that is too large for its topic.
_WORDS: Final = 50
_WORD: Final = 200


class EventError(TailraceError):
    """A record of `.schema-changes` is not one that this version reads."""


class EventKind(StrEnum):
    """What happened."""

    CREATED = "created"
    ALTERED = "altered"
    DROPPED = "dropped"
    TRUNCATED = "truncated"


class Subject(StrEnum):
    """To what: a view counts as a table."""

    KEYSPACE = "keyspace"
    TYPE = "type"
    TABLE = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaEvent:
    """One DDL statement's work on one thing, or a TRUNCATE, in one node's log.

    `table` is the definition that holds behind `position`; of a table that was dropped or truncated, the last one.
    `details` are a type's fields {name: type}, or a keyspace's {durable_writes, replication}. `written` is the
    statement's write time (microseconds), `metadata` the epoch of the cluster's metadata (Cassandra 6). `upto` is the
    (segment, offset) that a truncation removed the table's data up to. `inferred`: not the log, but a read of the
    cluster says so. `index` tells events of one mutation apart.
    """

    position: Position
    kind: EventKind
    subject: Subject
    keyspace: str
    name: str = ""
    table: Table | None = None
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)
    changed: tuple[str, ...] = ()
    written: int = 0
    metadata: int | None = None
    upto: tuple[int, int] | None = None
    inferred: bool = False
    index: int = 0
    stated: bytes | None = field(default=None, compare=False)
    """The digest that the event's record has, where it was read from one: that may lack a large definition."""

    @property
    def digest(self) -> bytes:
        """16 bytes, the same on every host, so that readers take one of the copies.

        BLAKE2b over the JSON of what the event is about, and of when: the metadata's epoch, else the statement's write
        time. What a host knew before does not count. A truncation has its own time on each host, hence its own digest.
        """
        if self.stated is not None:
            return self.stated
        defines = self.kind in (EventKind.CREATED, EventKind.ALTERED)
        identity = {
            "what": "defined" if defines else self.kind.value,
            "subject": self.subject.value,
            "keyspace": self.keyspace,
            "name": self.name,
            "id": None if self.table is None else str(self.table.id),
            "definition": self._definition() if defines else None,
            "when": ["written", self.written] if self.metadata is None else ["metadata", self.metadata],
        }
        text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.blake2b(text.encode(), digest_size=16).digest()

    def _definition(self) -> Mapping[str, Any]:
        return self.details if self.table is None else table_to_json(self.table)

    def __str__(self) -> str:
        name = ".".join(filter(None, (self.keyspace, self.name)))
        return f"{self.subject} {name} {self.kind}" + (f": {'; '.join(self.changed)}" if self.changed else "")


def event_key(host: str, event: SchemaEvent) -> bytes:
    """`<host id>/<epoch>/<segment>/<offset>/<index>`."""
    position = event.position
    return f"{host}/{position.epoch}/{position.segment}/{position.offset}/{event.index}".encode()


def encode_event(host: str, event: SchemaEvent) -> bytes:
    """{host, position: {epoch, segment, offset}, index, kind, subject, keyspace, name, id, definition, changed,
    written, metadata, upto: {segment, offset}, inferred, digest, format: 1}. What does not apply is null."""
    upto = event.upto
    value = {
        "host": host,
        "position": position_to_json(event.position),
        "index": event.index,
        "kind": event.kind.value,
        "subject": event.subject.value,
        "keyspace": event.keyspace,
        "name": event.name or None,
        "id": None if event.table is None else str(event.table.id),
        "definition": event._definition() or None,  # noqa: SLF001 - of this module
        "changed": list(event.changed),
        "written": event.written,
        "metadata": event.metadata,
        "upto": None if upto is None else {"segment": upto[0], "offset": upto[1]},
        "inferred": event.inferred,
        "digest": event.digest.hex(),
        "format": FORMAT,
    }
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def fitting_event(value: bytes, limit: int) -> bytes:
    """The value of an event's record in at most so many bytes: as it is, compressed, or without its definition.

    Then `omitted` says how many bytes it had, and of `changed` the first words are there.
    """
    if len(smaller := packed(value)) <= limit:
        return smaller
    record = json.loads(value)
    words = [word[:_WORD] for word in record["changed"][:_WORDS]]
    if len(words) < len(record["changed"]):
        words.append(f"and {len(record['changed']) - len(words)} more")
    record |= {"definition": None, "changed": words, "omitted": len(value)}
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()


def event_object(value: bytes) -> dict[str, Any]:
    """The JSON object of an event's record, compressed or not. Raises EventError for what is none."""
    try:
        return json_object(value)
    except ValueError as error:
        raise EventError(f"a schema change is not one of ours ({str(error)[:200]}): {value[:200]!r}") from error


def decode_event(value: bytes) -> tuple[str, SchemaEvent]:
    """Host and event of a record; one whose definition was too large has none. Raises EventError for another format,
    and for what is no such record."""
    record = event_object(value)
    try:
        require_format("a schema change", record["format"], FORMAT, error=EventError)
        upto, definition = record["upto"], record["definition"]
        subject = Subject(record["subject"])
        defines_table = subject is Subject.TABLE and definition is not None
        return str(record["host"]), SchemaEvent(
            position=position_from_json(record["position"]),
            index=int(record["index"]),
            kind=EventKind(record["kind"]),
            subject=subject,
            keyspace=str(record["keyspace"]),
            name=str(record["name"] or ""),
            table=table_from_json(definition) if defines_table else None,
            details={} if defines_table else definition or {},
            changed=tuple(map(str, record["changed"])),
            written=int(record["written"]),
            metadata=record["metadata"],
            upto=None if upto is None else (int(upto["segment"]), int(upto["offset"])),
            inferred=bool(record["inferred"]),
            stated=bytes.fromhex(record["digest"]),
        )
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise EventError(
            f"a schema change is not one of ours ({type(error).__name__}: {str(error)[:200]}): {value[:200]!r}"
        ) from error


def changed_words(before: Table | None, after: Table) -> tuple[str, ...]:
    """How two definitions of one table differ, for people: columns in their own order, then the cdc flag."""
    return () if before is None else tuple(_words(before, after))


def _words(before: Table, after: Table) -> Iterator[str]:
    renamed = [
        (old, new)
        for olds, news in ((before.partition_key, after.partition_key), (before.clustering, after.clustering))
        for old, new in zip(olds, news, strict=False)
        if old.name_bytes != new.name_bytes
    ]
    for old, new in renamed:
        yield f"key column {old.name} renamed to {new.name}"
    olds, news = _by_name(before.columns), _by_name(after.columns)
    for name, column in news.items():
        if name not in olds:
            yield f"column {column.name} {column.type} added"
        elif olds[name].kind is not column.kind:
            yield f"column {column.name} is {column.kind.value} now"
    yield from (f"column {column.name} dropped" for name, column in olds.items() if name not in news)
    keys = _by_name(before.key)
    for name, column in {**_by_name(after.key), **news}.items():
        previous = olds.get(name) or keys.get(name)
        if previous is not None and previous.type != column.type:
            yield _type_words(previous, column)
    if before.cdc != after.cdc:
        yield f"cdc {'on' if after.cdc else 'off'}"


def _type_words(old: Column, new: Column) -> str:
    if str(old.type) != str(new.type):
        return f"column {new.name}: {old.type} is {new.type} now"
    return f"column {new.name}: {new.type} has other fields"


def _by_name(columns: tuple[Column, ...]) -> dict[bytes, Column]:
    return {column.name_bytes: column for column in columns}


def table_id_of(subject: Subject, keyspace: str, name: str = "") -> UUID:
    """An id for what Cassandra gives none: keyspaces and types, so that they have a place in `.schema-history`."""
    digest = hashlib.md5(f"{subject}/{keyspace}/{name}".encode(), usedforsecurity=False).digest()
    return UUID(bytes=digest, version=3)
