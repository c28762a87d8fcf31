"""Keyspaces and user types as the log's DDL leaves them: what a mutation created, altered or dropped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from tailrace.commitlog.model import Mutation, PartitionUpdate, Row
from tailrace.history.cells import NEVER
from tailrace.history.events import EventKind
from tailrace.history.rows import KeyedRow, SchemaRows
from tailrace_schemas.cql.values import codec

OPTIONS: Final = ("durable_writes", "replication")
_UNDATED: Final[Mapping[str, int]] = MappingProxyType({})

Options = Mapping[str, Any]
"""A keyspace's {durable_writes: bool, replication: {name: text}}."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node's present state: its keyspaces' options, the last truncations, and the epoch of the cluster's metadata.

    `truncated` has the bytes of `system.local` by table id; `metadata` is None before Cassandra 6.
    """

    keyspaces: Mapping[str, Options] = field(default_factory=dict)
    truncated: Mapping[UUID, bytes] = field(default_factory=dict)
    metadata: int | None = None


def metadata_epoch_of(schema_version: UUID) -> int | None:
    """The metadata's epoch that a node's schema version is from Cassandra 6 on: the upper half is zero."""
    return schema_version.int if schema_version.int >> 64 == 0 else None


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """A keyspace or a type that is new, other, or gone; then `before` is what it was, and `after` is empty."""

    kind: EventKind
    keyspace: str
    name: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    @property
    def changed(self) -> tuple[str, ...]:
        """How, for people."""
        return tuple(self._words()) if self.kind is EventKind.ALTERED else ()

    def _words(self) -> Iterator[str]:
        word = "field" if self.name else "option"
        for name, value in self.after.items():
            if name not in self.before:
                yield f"{word} {name} {value} added"
            elif self.before[name] != value:
                yield f"{word} {name}: {_text(self.before[name])} is {_text(value)} now"
        yield from (f"{word} {name} is gone" for name in self.before if name not in self.after)


Object = tuple[str, str]
"""A keyspace's name, and a user type's; none for the keyspace itself."""


@dataclass(frozen=True, slots=True)
class Objects:
    """Keyspaces with their options, and user types with their fields {name: type}, in the log's order; immutable.

    `written` has the write time of each keyspace's options, where that is known.
    """

    known: Mapping[Object, Mapping[str, Any]] = field(default_factory=lambda: MappingProxyType({}))
    written: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def apply(self, mutation: Mutation, rows: SchemaRows) -> tuple[Objects, tuple[ObjectChange, ...]]:
        """The keyspaces and types after a mutation of `system_schema`, and how they changed; `rows` are those after it.

        Cassandra writes a keyspace's options with all DDL. Changes come by the types' names, the keyspace before them,
        or behind them where it was dropped.

        Raises DecodeError for values that are none.
        """
        updates = {update.table.name: update for update in mutation.updates}
        keyspace = mutation.updates[0].key.decode(errors="replace")
        states: dict[Object, Mapping[str, Any] | None] = {}
        written: dict[str, int] = {}
        # A mutation may be another node's copy, and older than what is known.
        if (update := updates.get("keyspaces")) is not None and _newest(update) > self.written.get(keyspace, NEVER):
            written[keyspace] = _newest(update)
            states[keyspace, ""] = next((_options(row) for row in _rows(update) if row.cells), None)
        if (update := updates.get("types")) is not None:
            names = (
                {name for owner, name in self.known if owner == keyspace and name} if update.deletion else set[str]()
            )
            names |= {(row.clustering[0] or b"").decode(errors="replace") for row in _rows(update)}
            present = types_of(rows.types(keyspace))
            states |= {(keyspace, name): present.get((keyspace, name)) for name in names}
        return self.become(states, written)

    def become(
        self, states: Mapping[Object, Mapping[str, Any] | None], written: Mapping[str, int] = _UNDATED
    ) -> tuple[Objects, tuple[ObjectChange, ...]]:
        """With these as they are said to be, written then; None: gone."""
        options = dict(self.known)
        defined, dropped = list[ObjectChange](), list[ObjectChange]()
        for (keyspace, name), new in sorted(states.items()):
            old = options.get((keyspace, name))
            if new is None:
                if options.pop((keyspace, name), None) is not None:
                    dropped.insert(0, ObjectChange(EventKind.DROPPED, keyspace, name, old or {}, {}))
            elif new != old:
                options[keyspace, name] = new
                kind = EventKind.CREATED if old is None else EventKind.ALTERED
                defined.append(ObjectChange(kind, keyspace, name, old or {}, new))
        times = MappingProxyType({**self.written, **written})
        return Objects(MappingProxyType(options), times), (*defined, *dropped)


def _rows(update: PartitionUpdate) -> Iterator[Row]:
    return (item for item in update.items if isinstance(item, Row))


def _newest(update: PartitionUpdate) -> int:
    """The newest write time of the row of a keyspace, or of its deletion."""
    deletions = [] if update.deletion is None else [update.deletion.written]
    return max([NEVER, *deletions, *(cell.written for row in _rows(update) for cell in row.cells)])


def _options(row: Row) -> Options:
    values = _values(row)
    replication = {item["key"]: item["value"] for item in values.get("replication") or ()}
    return {"durable_writes": bool(values.get("durable_writes", True)), "replication": replication}


def _values(row: Row) -> dict[str, Any]:
    return {
        cell.column.name: codec(cell.column.type).decode(cell.value)
        for cell in row.cells
        if cell.value is not None and cell.column.name in OPTIONS
    }


def types_of(rows: Iterable[KeyedRow]) -> dict[Object, Mapping[str, Any] | None]:
    """The user types among rows of `system_schema`."""
    return {
        row.owner: dict(zip(row.row.get("field_names") or (), row.row.get("field_types") or (), strict=False))
        for row in rows
        if row.table == "types"
    }


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)
