"""Whether a transaction of ours was committed, judged by its records: for those of which Kafka lost the mark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tailrace.publish.offsets import offsets_key
from tailrace.state import Resume
from tailrace_schemas.avro import SchemaEntry, decode
from tailrace_schemas.change import Change, Op, Origin
from tailrace_schemas.errors import TailraceError
from tailrace_schemas.position import Position
from tailrace_schemas.topics import Internal, internal_topic

Header = tuple[str, bytes | None, bytes | None]
"""Topic, key and value of a record."""

# Whose keys begin with the host id, and tell a position, if any, in their last parts but so many.
_AFTER_POSITION: Final = {Internal.SCHEMA_HISTORY: 0, Internal.SCHEMA_CHANGES: 1}


@dataclass(frozen=True, slots=True)
class Trace:
    """One record of this host. `told`: whether a given offsets record says that it is published. It is None for a
    record that tells nothing, or would do no harm a second time."""

    told: Callable[[Resume], bool | None]


class Owner:
    """Tells the records of one host from those of others, in all topics of a prefix; `schemas` decode changes."""

    def __init__(self, prefix: str, cluster: str, host: str, schemas: Mapping[bytes, SchemaEntry]) -> None:
        self._host = host
        self._own = offsets_key(cluster, host)
        self._schemas = schemas
        self._internal = {internal_topic(prefix, internal): internal for internal in Internal}

    def trace(self, record: Header) -> Trace | None:
        """What a record tells; None where it is not this host's."""
        topic, key, value = record
        internal = self._internal.get(topic)
        if internal is None:
            # Not by its key: keys of tables are partition keys, and tell no host.
            return None if value is None else self._change(value)
        key = key or b""
        if key == self._own or key.startswith((self._own + b"/", f"{self._host}/".encode())):
            return Trace(_by_key(internal, key))
        return None

    def is_offsets(self, record: Header) -> bool:
        """Whether it is the host's offsets record."""
        topic, key, value = record
        return self._internal.get(topic) is Internal.OFFSETS and key == self._own and value is not None

    def position(self, record: Header) -> Position | None:
        """The position of a change of this host that was published in its log's order; None for any other record."""
        topic, _, value = record
        change = None if value is None or topic in self._internal else self._decoded(value)
        if change is None or change.op is Op.TRUNCATE or change.source is None:
            return None
        source = change.source
        # A replayed or parked change is behind its place in the log.
        if source.host != self._host or source.origin is not Origin.LOG:
            return None
        return source.position

    def _decoded(self, value: bytes) -> Change | None:
        try:
            return decode(value, self._schemas)
        except TailraceError:
            return None

    def _change(self, value: bytes) -> Trace | None:
        change = self._decoded(value)
        if change is None:
            return None
        source = change.source
        # Copies of one mutation on other replicas are published by their own agents.
        if source is None or source.host != self._host:
            return None
        position, table = source.position, change.table.id

        def told(by: Resume) -> bool:
            # Truncations are published apart from the position, by the place up to which the log was read for DDL.
            if change.op is Op.TRUNCATE:
                pending = any(
                    truncation.position == position and truncation.table_id == table for truncation in by.truncations
                )
                return not pending and by.schema is not None and position <= by.schema
            parked = any(
                (lot.epoch, lot.segment) == (position.epoch, position.segment) and position.offset in lot.offsets
                for lot in by.parked
            )
            # What was parked comes behind the position; published from there (origin = parked), it was parked until
            # that commit.
            return not parked and (
                source.origin is Origin.PARKED or (by.position is not None and position <= by.position)
            )

        return Trace(told)


def committed(
    unmarked: Collection[Trace], by: Resume, records: int | None, visible: Callable[[], Iterable[Trace]]
) -> bool:
    """Whether the transaction was committed, of which the records `unmarked` have no mark; its offsets record apart.

    `by` is the last offsets record that readers have. Where the transaction's own has a mark, `records` is None, and
    that one tells. Else `records` is how many there are, as it says itself (-1: it does not).

    With all of them there, or one of them with readers, it counts as committed: Kafka may have told us so. With some
    missing and none with readers it never was, or nobody can know.
    """
    # The transaction's own offsets record has its mark: if it was committed, `by` was read from it.
    if records is None:
        verdicts = {trace.told(by) for trace in unmarked}
        return True in verdicts and False not in verdicts
    return len(unmarked) == records or any(trace.told(by) is False for trace in visible())


def _by_key(internal: Internal, key: bytes) -> Callable[[Resume], bool | None]:
    trailing = _AFTER_POSITION.get(internal)
    parts = key.decode(errors="replace").split("/")
    if trailing is None:
        return lambda _: None
    try:
        epoch, segment, offset = (int(digits) for digits in parts[len(parts) - 3 - trailing : len(parts) - trailing])
    except ValueError:
        return lambda _: None
    position = Position(epoch, segment, offset)
    return lambda by: by.schema is not None and position <= by.schema
