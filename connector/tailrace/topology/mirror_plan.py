"""What remains to be written of the mirror in CQL, from what is announced and what the tables have. Pure.

A generation's description comes first, all of its rows, then its timestamp: who sees the timestamp finds the rest
(stream-ids.md 4). Every write has a write time that follows from the generations, not from who writes it when. So any
number of agents may write the same at any time, again and late, and what was removed stays removed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from itertools import pairwise, zip_longest
from typing import Final, TypeAlias
from uuid import NAMESPACE_URL, UUID, uuid5

from tailrace_schemas.errors import SettingsError
from tailrace_schemas.generation_records import PublishedGeneration
from tailrace_schemas.ring import Ring
from tailrace_schemas.streams import Generation, StreamId

Shapes = Mapping[str, Mapping[str, str]]
"""Table -> column -> CQL type, as `system_schema.columns` has them."""

_MOST_COPIES: Final = 3
_NOT_IN_A_TYPE: Final = re.compile(r"frozen|[<>\s]")
TIMESTAMPS_KEY: Final = "timestamps"
CURRENT_KEY: Final = "cdc_local"
REWRITTEN_KEY: Final = "rewritten"
LARGEST_ROW: Final = 1_000_000
"""Bytes, about. A whole description in one row is written up to here: Cassandra takes no mutation above half a segment.
Readers of ScyllaDB 4.4 and later read `cdc_streams_descriptions_v2`, which has a row for each entry."""

TURN_MS: Final = 10_000
MOST_TURN_MS: Final = 300_000
BATCH_BYTES: Final = 128 << 10
"""Rows written together are one mutation: well below the smallest max_mutation_size in use."""

_ROW_BYTES: Final = 60
_STREAM_BYTES: Final = 28


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


@dataclass(frozen=True, slots=True)
class Write:
    """Rows of one partition, written as a whole; `written` is their write time in microseconds."""

    table: MirrorTable
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...] = field(repr=False)
    written: int

    def cql(self, keyspace: str) -> str:
        """The statement of each row, with a placeholder for each of its `parameters`."""
        columns, placeholders = ", ".join(self.columns), ", ".join("?" * len(self.columns))
        into = f"{quoted(keyspace)}.{self.table}"
        return f"INSERT INTO {into} ({columns}) VALUES ({placeholders}) USING TIMESTAMP ?"  # noqa: S608 - our own names

    @property
    def parameters(self) -> tuple[tuple[object, ...], ...]:
        """What each row's statement takes."""
        return tuple((*row, self.written) for row in self.rows)


@dataclass(frozen=True, slots=True)
class Removal:
    """A partition or row that goes: that whose `columns` have these values; `written` as a write's."""

    table: MirrorTable
    columns: tuple[str, ...]
    values: tuple[object, ...]
    written: int

    def cql(self, keyspace: str) -> str:
        """The statement."""
        conditions = " AND ".join(f"{name} = ?" for name in self.columns)
        table = f"{quoted(keyspace)}.{self.table}"
        return f"DELETE FROM {table} USING TIMESTAMP ? WHERE {conditions}"  # noqa: S608 - our own names

    @property
    def parameters(self) -> tuple[tuple[object, ...], ...]:
        """What the statement takes."""
        return ((self.written, *self.values),)


Step: TypeAlias = Write | Removal


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorOptions:
    """`v1`: also write the table for old readers. `keep_ms`: how long a superseded generation stays; None: always.

    `batch_bytes` is about how large a write of several rows gets, `largest_row` the largest of a single one.
    """

    v1: bool = False
    keep_ms: int | None = None
    batch_bytes: int = BATCH_BYTES
    largest_row: int = LARGEST_ROW


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the tables have. Generations by timestamp (milliseconds), each with its `expired`, where it has that.

    `partitions` are those of cdc_streams_descriptions_v2; `range_ends` the rows there are of each whose timestamp is
    not announced yet. `v1` is empty where there is no such table. `local` is cdc_local, by key.
    """

    timestamps: Mapping[int, int | None] = field(default_factory=dict)
    descriptions: Mapping[int, int | None] = field(default_factory=dict)
    v1: Mapping[int, int | None] = field(default_factory=dict)
    partitions: Collection[int] = ()
    range_ends: Mapping[int, Collection[int]] = field(default_factory=dict)
    local: Mapping[str, int | None] = field(default_factory=dict)


def remaining(
    published: Sequence[PublishedGeneration],
    tables: Seen,
    options: MirrorOptions,
    form: IdForm,
    now_ms: int,
    too_large: Collection[int] = (),
) -> Iterator[Step]:
    """The steps that are left, in their order; `published` ascends by timestamp, as readers of the topic have it.

    `form` is that of the tables' stream ids. `too_large` are generations of which that is known (`fits_a_row`): it
    takes long to unpack them to find out.
    """
    yield from _gone(published, tables, options, now_ms)
    for generation, successor in zip_longest(published, published[1:]):
        superseded = None if successor is None else successor.timestamp
        if superseded is not None and is_removable(superseded, options, now_ms):
            yield from _removals(generation.timestamp, superseded, tables, options)
            continue
        yield from _announcement(generation, tables, options, form, generation.timestamp in too_large)
        if superseded is not None and superseded <= now_ms and options.keep_ms is not None:
            yield from _expirations(generation.timestamp, superseded, tables)
    latest = published[-1].timestamp if published else None
    if latest is not None and (tables.local.get(CURRENT_KEY) or latest - 1) < latest:
        yield Write(MirrorTable.LOCAL, ("key", "streams_timestamp"), ((CURRENT_KEY, latest),), latest * 1000)


def _gone(
    published: Sequence[PublishedGeneration], tables: Seen, options: MirrorOptions, now_ms: int
) -> Iterator[Step]:
    """What became of generations that are in the tables and not in the topic: gone there, or imported.

    By the same rule as all others; but not before the import is done, whose rows are not announced yet.
    """
    if not published or options.keep_ms is None or REWRITTEN_KEY not in tables.local:
        return
    oldest = published[0].timestamp
    older = sorted(time for time in {*tables.timestamps, *tables.partitions} if time < oldest)
    for time, superseded in pairwise([*older, oldest]):
        if is_removable(superseded, options, now_ms):
            yield from _removals(time, superseded, tables, options)
        elif superseded <= now_ms:
            yield from _expirations(time, superseded, tables)


def turn_ms(ring: Ring, timestamp: int, host: str) -> int:
    """How long a host holds back before it writes this generation: one begins at once, the next TURN_MS later.

    All could begin at once, but one does: in a large cluster a generation is megabytes. Who it is follows from host
    and generation; a host that the ring does not have is the last.
    """
    hosts = sorted((node.host for node in ring.nodes), key=lambda name: sha256(f"{timestamp} {name}".encode()).digest())
    return min((hosts.index(host) if host in hosts else len(hosts)) * TURN_MS, MOST_TURN_MS)


def is_removable(superseded: int, options: MirrorOptions, now_ms: int) -> bool:
    """Whether a generation whose successor operates since then (milliseconds) need not be in the mirror any more."""
    return options.keep_ms is not None and superseded + options.keep_ms <= now_ms


def stream_rows(
    time: int,
    rows: Sequence[tuple[int, Sequence[object]]],
    existing: Collection[int] = (),
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[Write]:
    """cdc_streams_descriptions_v2: a row for each range end, with its streams; without those that are there."""
    batch: list[tuple[object, ...]] = []
    size = 0
    for range_end, streams in rows:
        if range_end in existing:
            continue
        batch.append((time, range_end, sorted(streams)))  # type: ignore[type-var]  # all bytes, or all pairs
        size += _ROW_BYTES + _STREAM_BYTES * len(streams)
        if size >= batch_bytes:
            yield Write(MirrorTable.STREAMS, ("time", "range_end", "streams"), tuple(batch), time * 1000)
            batch, size = [], 0
    if batch:
        yield Write(MirrorTable.STREAMS, ("time", "range_end", "streams"), tuple(batch), time * 1000)


def timestamp_row(time: int) -> Write:
    """What makes a generation known, written last."""
    return Write(MirrorTable.TIMESTAMPS, ("key", "time"), ((TIMESTAMPS_KEY, time),), time * 1000)


def marker(rewritten: int | None, now_ms: int) -> Write:
    """What says that everything of the v1 table is in the later ones; with the last generation copied, if any."""
    return Write(MirrorTable.LOCAL, ("key", "streams_timestamp"), ((REWRITTEN_KEY, rewritten),), now_ms * 1000)


def fits_a_row(generation: Generation, largest: int = LARGEST_ROW) -> bool:
    """Whether its whole description, and all of its streams, may be written as one row, of so many bytes at most."""
    entries = generation.entries
    size = len(entries) * _ROW_BYTES + sum(len(entry.streams) for entry in entries) * _STREAM_BYTES
    return size <= largest


def _announcement(
    publication: PublishedGeneration, tables: Seen, options: MirrorOptions, form: IdForm, is_too_large: bool
) -> Iterator[Step]:
    time = publication.timestamp
    is_known = time in tables.timestamps
    is_described = is_too_large or time in tables.descriptions
    is_in_v1 = is_too_large or time in tables.v1 or not options.v1
    if is_known and is_described and is_in_v1:
        return
    generation = publication.unpack().generation
    fits = fits_a_row(generation, options.largest_row)
    if not is_known:
        rows = [(e.token_range_end, [form.value_of(s) for s in e.streams]) for e in generation.entries]
        yield from stream_rows(time, rows, tables.range_ends.get(time, ()), options.batch_bytes)
    if not is_described and fits:
        described = [
            (
                form.range_end_of(entry.token_range_end),
                [form.value_of(stream) for stream in entry.streams],
                entry.sharding_ignore_msb,
            )
            for entry in generation.entries
        ]
        yield Write(MirrorTable.DESCRIPTIONS, ("time", "description"), ((time, described),), time * 1000)
    if not is_in_v1 and fits:
        streams = [form.value_of(stream) for stream in sorted(generation.streams())]
        yield Write(MirrorTable.STREAMS_V1, ("time", "streams"), ((time, streams),), time * 1000)
    if not is_known:
        yield timestamp_row(time)


def _expirations(time: int, superseded: int, tables: Seen) -> Iterator[Step]:
    """`expired`, where the generation stands without it; where it is written only now, the next look sets it."""
    written = superseded * 1000
    if time in tables.timestamps and tables.timestamps[time] is None:
        row = (TIMESTAMPS_KEY, time, superseded)
        yield Write(MirrorTable.TIMESTAMPS, ("key", "time", "expired"), (row,), written)
    for table, existing in ((MirrorTable.DESCRIPTIONS, tables.descriptions), (MirrorTable.STREAMS_V1, tables.v1)):
        if time in existing and existing[time] is None:
            yield Write(table, ("time", "expired"), ((time, superseded),), written)


def _removals(time: int, superseded: int, tables: Seen, options: MirrorOptions) -> Iterator[Step]:
    """The other way round: the timestamp goes first, so that nobody finds half a description behind it."""
    written = (superseded + (options.keep_ms or 0)) * 1000
    if time in tables.timestamps:
        yield Removal(MirrorTable.TIMESTAMPS, ("key", "time"), (TIMESTAMPS_KEY, time), written)
    for table, existing in (
        (MirrorTable.STREAMS_V1, tables.v1),
        (MirrorTable.DESCRIPTIONS, tables.descriptions),
        (MirrorTable.STREAMS, tables.partitions),
    ):
        if time in existing:
            yield Removal(table, ("time",), (time,), written)
