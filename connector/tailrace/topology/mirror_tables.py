"""The tables of the mirror in CQL: ScyllaDB's names and shapes, in a keyspace of the user's choice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final
from uuid import NAMESPACE_URL, UUID, uuid5

from tailrace_schemas.errors import SettingsError
from tailrace_schemas.ring import Ring
from tailrace_schemas.streams import StreamId

Shapes = Mapping[str, Mapping[str, str]]
"""Table -> column -> CQL type, as `system_schema.columns` has them."""

_MOST_COPIES: Final = 3
_NOT_IN_A_TYPE: Final = re.compile(r"frozen|[<>\s]")


class MirrorTable(StrEnum):
    """The tables, by their names (stream-ids.md 4)."""

    LOCAL = "cdc_local"
    TIMESTAMPS = "cdc_generation_timestamps"
    STREAMS = "cdc_streams_descriptions_v2"
    DESCRIPTIONS = "cdc_generation_descriptions"
    STREAMS_V1 = "cdc_streams_descriptions"


class IdForm(StrEnum):
    """How a stream id stands in the tables: as two numbers, or as the 16 bytes that log tables have."""

    TUPLE = "tuple"
    BLOB = "blob"

    def value_of(self, stream: StreamId) -> tuple[int, int] | bytes:
        """The stream id as the driver takes it."""
        if self is IdForm.BLOB:
            return stream.value
        return stream.token, int.from_bytes(stream.value[8:], "big", signed=True)

    def range_end_of(self, token: int) -> str | int:
        """The end of an entry's range as the description's list has it: text beside tuples, a number beside blobs."""
        return str(token) if self is IdForm.TUPLE else token

    @property
    def types(self) -> Shapes:
        """Every table's columns and their types; the primary key's first."""
        stream = "frozen<tuple<bigint, bigint>>" if self is IdForm.TUPLE else "blob"
        end = "text" if self is IdForm.TUPLE else "bigint"
        streams = f"frozen<set<{stream}>>"
        description = f"frozen<list<frozen<tuple<{end}, frozen<list<{stream}>>, tinyint>>>>"
        return {
            MirrorTable.LOCAL: {"key": "text", "streams_timestamp": "timestamp"},
            MirrorTable.TIMESTAMPS: {"key": "text", "time": "timestamp", "expired": "timestamp"},
            MirrorTable.STREAMS: {"time": "timestamp", "range_end": "bigint", "streams": streams},
            MirrorTable.DESCRIPTIONS: {"time": "timestamp", "description": description, "expired": "timestamp"},
            MirrorTable.STREAMS_V1: {"time": "timestamp", "streams": streams, "expired": "timestamp"},
        }


PRIMARY_KEYS: Final[Mapping[MirrorTable, tuple[str, ...]]] = {
    MirrorTable.LOCAL: ("key",),
    MirrorTable.TIMESTAMPS: ("key", "time"),
    MirrorTable.STREAMS: ("time", "range_end"),
    MirrorTable.DESCRIPTIONS: ("time",),
    MirrorTable.STREAMS_V1: ("time",),
}


def wanted(v1: bool) -> tuple[MirrorTable, ...]:
    """The tables that the mirror needs, in the order in which they are made; v1's only on request."""
    return tuple(table for table in MirrorTable if v1 or table is not MirrorTable.STREAMS_V1)


def quoted(name: str) -> str:
    """A name as CQL takes it, whatever it is."""
    return '"' + name.replace('"', '""') + '"'


def create_keyspace(keyspace: str, replication: Mapping[str, int]) -> str:
    """The statement that makes the keyspace: NetworkTopologyStrategy, copies by datacenter."""
    copies = "".join(f", '{dc.replace(chr(39), chr(39) * 2)}': {factor}" for dc, factor in sorted(replication.items()))
    strategy = f"{{'class': 'NetworkTopologyStrategy'{copies}}}"
    return f"CREATE KEYSPACE IF NOT EXISTS {quoted(keyspace)} WITH replication = {strategy}"


def default_replication(ring: Ring) -> dict[str, int]:
    """Three copies in each datacenter of the ring, or as many as it has nodes."""
    nodes: dict[str, int] = {}
    for node in ring.nodes:
        if node.tokens:
            nodes[node.datacenter] = nodes.get(node.datacenter, 0) + 1
    return {dc: min(_MOST_COPIES, node_count) for dc, node_count in nodes.items()}


def create_table(keyspace: str, table: MirrorTable, form: IdForm) -> str:
    """The statement that makes one of the tables.

    Its id follows from its name. Otherwise two nodes, where two agents create it at once, would each draw an id of
    their own before Cassandra 6, and disagree for good.
    """
    columns = ", ".join(f"{name} {kind}" for name, kind in form.types[table].items())
    options = [f"ID = {_table_id(keyspace, table)}"]
    if table is MirrorTable.TIMESTAMPS:
        options.insert(0, "CLUSTERING ORDER BY (time DESC)")
    return (
        f"CREATE TABLE IF NOT EXISTS {quoted(keyspace)}.{table} "
        f"({columns}, PRIMARY KEY ({', '.join(PRIMARY_KEYS[table])})) WITH {' AND '.join(options)}"
    )


def existing_form(shapes: Shapes) -> IdForm | None:
    """The form of the stream ids in a keyspace's tables; None where none of them has any."""
    for table in (MirrorTable.STREAMS, MirrorTable.DESCRIPTIONS, MirrorTable.STREAMS_V1):
        if table in shapes:
            return form_of(shapes[table])
    return None


def require_shapes(keyspace: str, shapes: Shapes, tables: Iterable[MirrorTable], form: IdForm) -> None:
    """Raise SettingsError for the first of these tables, where it is there, that lacks a column or has it otherwise."""
    for table in tables:
        columns = shapes.get(table)
        for name, kind in form.types[table].items() if columns is not None else ():
            actual = (columns or {}).get(name)
            if actual is None or _plain(actual) != _plain(kind):
                raise SettingsError(
                    f"{keyspace}.{table} has {name} {actual or 'not at all'}, the mirror writes {kind}. Remove "
                    "mirror.stream_ids to go on in the form of the tables, drop this table, or name another keyspace"
                )


def form_of(columns: Mapping[str, str]) -> IdForm:
    """How the stream ids of a table of descriptions stand, by the types of its columns."""
    return IdForm.BLOB if any("blob" in kind for kind in columns.values()) else IdForm.TUPLE


def _table_id(keyspace: str, table: MirrorTable) -> UUID:
    return uuid5(NAMESPACE_URL, f"tailrace:mirror:{keyspace}:{table}")


def _plain(kind: str) -> str:
    """A type without what releases write differently: spaces, and `frozen` around what is always frozen."""
    return _NOT_IN_A_TYPE.sub("", kind)
