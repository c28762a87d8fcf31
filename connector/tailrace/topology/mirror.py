"""The mirror of the generations in CQL: what it does to its tables, and the thread in which an agent does it.

`import_v1` follows ScyllaDB's procedure (generation_service::maybe_rewrite_streams_descriptions, stream-ids.md 4):

    1  Without cdc_streams_descriptions there is nothing to do.
    2  Where cdc_local has the marker, key 'rewritten', there is nothing to do.
    3  Where no table has CDC, nothing is copied, and the marker is written.
    4  All timestamps of the v1 table are read in the background.
    5  Those are skipped after which a later one is still older than the oldest change of every table with CDC.
    6  Those that the later tables have are skipped; the others are copied from the generation's description.
    7  Last, the marker is written.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from tailrace.cluster import LiveCluster
from tailrace.ops.health import HealthBoard
from tailrace.topology.mirror_plan import (
    REWRITTEN_KEY,
    TIMESTAMPS_KEY,
    IdForm,
    MirrorOptions,
    MirrorTable,
    Seen,
    Shapes,
    Step,
    create_keyspace,
    create_table,
    default_replication,
    existing_form,
    fits_a_row,
    marker,
    quoted,
    remaining,
    require_shapes,
    stream_rows,
    timestamp_row,
    turn_ms,
    wanted,
)
from tailrace_common.backoff import Backoff, Waits
from tailrace_common.closing import Turns
from tailrace_common.topics import GenerationReader
from tailrace_schemas.errors import SettingsError, TailraceError
from tailrace_schemas.generation_records import PublishedGeneration

_LOG: Final = logging.getLogger("tailrace.mirror")
_CAUSE: Final = "mirror"
_POLL_SECONDS: Final = 5.0
# The tables are read in whole then: for what expires, and for what somebody else removed.
_LOOK_MS: Final = 600_000
_WAITS: Final = Waits(1.0, 60.0)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
LOG_SUFFIX: Final = "_scylla_cdc_log"
DEFAULT_TTL_SECONDS: Final = 86_400
"""How long ScyllaDB keeps changes in a log table, unless it is configured otherwise."""

# As ScyllaDB: clocks may differ by so much.
_CLOCKS_MS: Final = 10_000


class MirrorStore(Protocol):
    """The mirror's keyspace; see CqlStore. All raise ServiceError."""

    @property
    def keyspace(self) -> str:
        """Its name."""

    def shapes(self) -> Shapes | None:
        """Its tables, and their columns' types; None where there is no such keyspace."""

    def create_keyspace(self, replication: Mapping[str, int]) -> None:
        """Make it, unless it is there by now."""

    def create_table(self, table: MirrorTable, form: IdForm) -> None:
        """Make a table, unless it is there by now."""

    def apply(self, step: Step) -> None:
        """Write or remove; done, on a majority of the replicas, when it returns."""

    def expirations(self, table: MirrorTable) -> Mapping[int, int | None]:
        """The generations of cdc_generation_timestamps, -_descriptions or the v1 table, each with its `expired`."""

    def partitions(self) -> Sequence[int]:
        """The generations of which cdc_streams_descriptions_v2 has rows."""

    def range_ends(self, time: int) -> Sequence[int]:
        """Those of one generation."""

    def local(self) -> Mapping[str, int | None]:
        """cdc_local."""

    def description(self, time: int) -> Sequence[tuple[Any, Sequence[Any], int]] | None:
        """A generation's entries in cdc_generation_descriptions; None where it has none."""

    def tables_of_cluster(self) -> Sequence[Mapping[str, Any]]:
        """Rows of system_schema.tables: keyspace_name, table_name, cdc, default_time_to_live."""


@dataclass(slots=True)
class Mirror:
    """Brings one keyspace up to date; any number of agents may do so at once, and stop anywhere.

    `create`: make keyspace and tables that are missing. `replication`: copies by datacenter of a keyspace that is made;
    None: `default_replication` of the ring. `form` of the stream ids; None: that of the tables, BLOB in new ones.
    `ended` says whether to stop before the next statement.
    """

    store: MirrorStore
    options: MirrorOptions
    create: bool = True
    replication: Mapping[str, int] | None = None
    form: IdForm | None = None
    ended: Callable[[], bool] = lambda: False
    _warned: bool = False
    _too_large: set[int] = field(default_factory=set)

    def update(self, published: Sequence[PublishedGeneration], now_ms: int) -> int:
        """Write what is missing of these generations, and remove what need not stay; how many steps that took.

        Raises ServiceError, and SettingsError when the keyspace cannot be used as it is.
        """
        if not published:
            return 0
        has_v1, form = self._prepare(published[-1], now_ms)
        steps = 0
        existing = self._look(published, has_v1)
        for step in remaining(published, existing, self.options, form, now_ms, self._too_large):
            if self.ended():
                return steps
            self.store.apply(step)
            steps += 1
        if steps:
            self._note_too_large(published)
        return steps

    def import_v1(self, now_ms: int) -> tuple[int, ...]:
        """Copy what the v1 table has and the later ones lack; the generations that were copied.

        To be called after `update`, which makes the tables. Raises ServiceError; whoever comes next goes on.
        """
        store = self.store
        if MirrorTable.STREAMS_V1 not in (store.shapes() or {}) or REWRITTEN_KEY in store.local():
            return ()
        ttls = log_ttls(store.tables_of_cluster())
        chosen: tuple[int, ...] = ()
        if ttls:
            chosen = generations_to_copy(store.expirations(MirrorTable.STREAMS_V1), ttls, now_ms)
        copied = tuple(time for time in chosen if self._copy(time))
        if self.ended():
            return copied
        store.apply(marker(chosen[-1] if chosen else None, now_ms))
        _LOG.info("mirror: copied %d generations from %s.cdc_streams_descriptions", len(copied), store.keyspace)
        return copied

    def _copy(self, time: int) -> bool:
        """One generation; False where it is there already, or nothing describes it."""
        if self.ended() or time in self.store.expirations(MirrorTable.TIMESTAMPS):
            return False
        description = self.store.description(time)
        if not description:
            # As ScyllaDB does: to wait for it would keep all others from readers.
            _LOG.error(
                "mirror: keyspace %s has no description of generation %d; it is not copied", self.store.keyspace, time
            )
            return False
        for step in copy_steps(time, description, self.store.range_ends(time)):
            if self.ended():
                return False
            self.store.apply(step)
        return True

    def _prepare(self, latest: PublishedGeneration, now_ms: int) -> tuple[bool, IdForm]:
        """Make what is missing; whether there is a v1 table, and the form of the stream ids."""
        tables, shapes = wanted(self.options.v1), self.store.shapes()
        if shapes is None:
            self._require_create(f"there is no keyspace {self.store.keyspace}")
            self.store.create_keyspace(self.replication or default_replication(latest.unpack().ring))
            shapes = {}
        has_v1 = MirrorTable.STREAMS_V1 in shapes
        form = self._form(shapes)
        require_shapes(self.store.keyspace, shapes, MirrorTable if self.options.v1 else tables, form)
        for table in tables:
            if table not in shapes:
                self._require_create(f"keyspace {self.store.keyspace} has no table {table}")
                self.store.create_table(table, form)
                _LOG.info("mirror: created table %s.%s", self.store.keyspace, table)
            if table is MirrorTable.LOCAL and not has_v1 and REWRITTEN_KEY not in self.store.local():
                # Nothing of an old installation is here: readers need not wait for an import. Before our own v1 table.
                self.store.apply(marker(None, now_ms))
        return has_v1 or self.options.v1, form

    def _form(self, shapes: Shapes) -> IdForm:
        """As set; else that of the tables, since readers of an existing mirror expect it."""
        if self.form is not None:
            return self.form
        form = existing_form(shapes) or IdForm.BLOB
        if form is IdForm.TUPLE and not self._warned:
            self._warned = True
            _LOG.warning(
                "mirror: the tables in keyspace %s have stream ids as tuples, which ScyllaDB's own clients cannot "
                "read; going on in this form. For blobs, drop these tables, or name another keyspace (mirror.keyspace)",
                self.store.keyspace,
            )
        return form

    def _require_create(self, problem: str) -> None:
        if not self.create:
            raise SettingsError(f"mirror: {problem}; make it (docs/security.md 2), or set mirror.create = true")

    def _look(self, published: Sequence[PublishedGeneration], has_v1: bool) -> Seen:
        store = self.store
        timestamps, partitions = store.expirations(MirrorTable.TIMESTAMPS), store.partitions()
        unfinished = [
            generation.timestamp
            for generation in published
            if generation.timestamp not in timestamps and generation.timestamp in partitions
        ]
        return Seen(
            timestamps=timestamps,
            descriptions=store.expirations(MirrorTable.DESCRIPTIONS),
            v1=store.expirations(MirrorTable.STREAMS_V1) if has_v1 else {},
            partitions=frozenset(partitions),
            range_ends={time: frozenset(store.range_ends(time)) for time in unfinished},
            local=store.local(),
        )

    def _note_too_large(self, published: Sequence[PublishedGeneration]) -> None:
        described = self.store.expirations(MirrorTable.DESCRIPTIONS)
        for publication in published:
            if publication.timestamp not in described and publication.timestamp not in self._too_large:
                generation = publication.unpack().generation
                if not fits_a_row(generation, self.options.largest_row):
                    self._too_large.add(publication.timestamp)
                    _LOG.info(
                        "mirror: generation %d has %d entries, too many for one row: only cdc_streams_descriptions_v2 "
                        "has its streams",
                        publication.timestamp,
                        len(generation.entries),
                    )


class MirrorThread(Turns[GenerationReader]):
    """Keeps a mirror up to date from a thread of its own; whatever goes wrong is tried again, and stops nothing else.

    `host` says when its turn is (`turn_ms`). `health` has the problem, cause `mirror`, while there is one, and a gauge
    of the generations that the mirror is up to date with.
    """

    def __init__(
        self,
        mirror: Mirror,
        host: str,
        open_reader: Callable[[], GenerationReader],
        health: HealthBoard,
        milliseconds: Callable[[], int],
        poll_seconds: float = _POLL_SECONDS,
        waits: Waits = _WAITS,
    ) -> None:
        super().__init__("mirror", open_reader)
        self._mirror = mirror
        self._host = host
        self._health = health
        self._milliseconds = milliseconds
        self._poll_seconds = poll_seconds
        self._backoff = Backoff(waits)
        self._imported = False
        self._known: tuple[PublishedGeneration, ...] = ()
        self._due_ms = 0
        mirror.ended = self.ended.is_set
        self.begin()

    def _failed(self, error: Exception) -> float:
        if self._health.degrade(_CAUSE, f"the mirror in CQL is behind: {error}"):
            _LOG.error("%s", error, exc_info=None if isinstance(error, TailraceError) else error)
        return self._backoff.next()

    def _turn(self, opened: GenerationReader) -> float:
        self._update(opened.refresh(), self._milliseconds())
        self._health.recover(_CAUSE)
        self._backoff.reset()
        return self._poll_seconds

    def _update(self, published: tuple[PublishedGeneration, ...], now_ms: int) -> None:
        if not published:
            return
        if published != self._known:
            self._known = published
            latest = published[-1].unpack()
            self._due_ms = now_ms + turn_ms(latest.ring, latest.generation.timestamp, self._host)
        if now_ms < self._due_ms:
            return
        steps = self._mirror.update(published, now_ms)
        if steps:
            _LOG.info("mirror: %d statements, up to generation %d", steps, published[-1].timestamp)
        self._health.gauge(mirrored_generations=len(published))
        if not self._imported:
            self._mirror.import_v1(now_ms)
            self._imported = True
        self._due_ms = now_ms + _LOOK_MS


@dataclass(frozen=True, slots=True)
class CqlStore:
    """The mirror's keyspace in a live cluster: statements by name, results as plain values.

    A MirrorStore (topology.mirror): reads and writes by QUORUM, so that who sees a timestamp sees the rows.
    """

    cluster: LiveCluster
    keyspace: str

    def shapes(self) -> Shapes | None:
        """Its tables, and their columns' types; None where there is no such keyspace."""
        name = (self.keyspace,)
        if not self.cluster.read("SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?", name):
            return None
        shapes: dict[str, dict[str, str]] = {}
        query = "SELECT table_name, column_name, type FROM system_schema.columns WHERE keyspace_name = ?"
        for row in self.cluster.read(query, name):
            shapes.setdefault(row["table_name"], {})[row["column_name"]] = row["type"]
        return shapes

    def create_keyspace(self, replication: Mapping[str, int]) -> None:
        """Make it, unless it is there by now."""
        self.cluster.define(create_keyspace(self.keyspace, replication))

    def create_table(self, table: MirrorTable, form: IdForm) -> None:
        """Make a table, unless it is there by now."""
        self.cluster.define(create_table(self.keyspace, table, form))

    def apply(self, step: Step) -> None:
        """Write or remove; done, on a majority of the replicas, when it returns."""
        self.cluster.write(step.cql(self.keyspace), step.parameters)

    def expirations(self, table: MirrorTable) -> Mapping[int, int | None]:
        """The generations of a table, each with its `expired`, in milliseconds."""
        condition, values = (" WHERE key = ?", (TIMESTAMPS_KEY,)) if table is MirrorTable.TIMESTAMPS else ("", ())
        rows = self._read(
            "toUnixTimestamp(time) AS time, toUnixTimestamp(expired) AS expired", table, condition, values
        )
        return {row["time"]: row["expired"] for row in rows}

    def partitions(self) -> Sequence[int]:
        """The generations of which cdc_streams_descriptions_v2 has rows."""
        rows = self._read("DISTINCT time", MirrorTable.STREAMS)
        return [(row["time"].replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND for row in rows]

    def range_ends(self, time: int) -> Sequence[int]:
        """Those of one generation."""
        rows = self._read("range_end", MirrorTable.STREAMS, " WHERE time = ?", (time,))
        return [row["range_end"] for row in rows]

    def local(self) -> Mapping[str, int | None]:
        """cdc_local."""
        rows = self._read("key, toUnixTimestamp(streams_timestamp) AS time", MirrorTable.LOCAL)
        return {row["key"]: row["time"] for row in rows}

    def description(self, time: int) -> Sequence[tuple[Any, Sequence[Any], int]] | None:
        """A generation's entries in cdc_generation_descriptions; None where it has none."""
        rows = self._read("description", MirrorTable.DESCRIPTIONS, " WHERE time = ?", (time,))
        return rows[0]["description"] if rows else None

    def tables_of_cluster(self) -> Sequence[Mapping[str, Any]]:
        """Rows of system_schema.tables."""
        return self.cluster.execute(
            "SELECT keyspace_name, table_name, cdc, default_time_to_live FROM system_schema.tables"
        )

    def _read(
        self, columns: str, table: MirrorTable, condition: str = "", values: Sequence[object] = ()
    ) -> Sequence[Mapping[str, Any]]:
        query = f"SELECT {columns} FROM {quoted(self.keyspace)}.{table}{condition}"  # noqa: S608 - our own names, quoted
        return self.cluster.read(query, values)


def log_ttls(tables: Iterable[Mapping[str, Any]]) -> tuple[int, ...]:
    """How long each table with CDC has its changes, in seconds; 0: always. Of rows of system_schema.tables.

    A table's changes live as long as its log table says; a day where it has none.
    """
    ttls: dict[tuple[str, str], int] = {}
    for row in tables:
        name = (row["keyspace_name"], row["table_name"].removesuffix(LOG_SUFFIX))
        if row["table_name"].endswith(LOG_SUFFIX):
            ttls[name] = row["default_time_to_live"] or 0
        elif row["cdc"]:
            ttls.setdefault(name, DEFAULT_TTL_SECONDS)
    return tuple(ttls.values())


def generations_to_copy(timestamps: Iterable[int], ttls: Sequence[int], now_ms: int) -> tuple[int, ...]:
    """Step 5: the generations (milliseconds, ascending) that some table may still have changes of.

    Those from the last one on that is older than any change can be: it operated when the oldest change was written.
    """
    ordered = sorted(timestamps)
    if not ttls:
        return ()
    if 0 in ttls:
        return tuple(ordered)
    oldest = now_ms - max(ttls) * 1000 - _CLOCKS_MS
    return tuple(ordered[max(0, bisect_left(ordered, oldest) - 1) :])


def copy_steps(
    time: int, description: Sequence[tuple[Any, Sequence[Any], int]], existing: Collection[int] = ()
) -> Iterator[Step]:
    """Step 6: one generation from its description (range end, streams, ignore_msb), as it stands: rows, then timestamp.

    Streams are copied unread: those of old releases have no version that we would take.
    """
    rows = [(int(range_end), list(dict.fromkeys(streams))) for range_end, streams, _ in description]
    yield from stream_rows(time, rows, existing)
    yield timestamp_row(time)
