"""The snapshots of a stream: range by range into its sink, while the stream follows the log.

A step notes the ranges of a round, reads them and looks whether the table is still the same. Then it writes them, and
notes that they are done. Nobody but a write has the sink meanwhile, so the log's batches go in between.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar
from uuid import uuid4

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no types
from pyspark import InheritableThread
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import SparkSession

from tailrace_common.backoff import Backoff, Waits
from tailrace_common.cli.logs import carried
from tailrace_common.sections.stream import StreamSettings
from tailrace_common.selection import listed
from tailrace_common.settings import Settings
from tailrace_common.unreachable import problem_and_remedy, with_next_try
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.job.checkpoint_files import Folder, files_in
from tailrace_spark.job.endings import StoppedError, reason
from tailrace_spark.job.fitness import existing_rows, refused_by
from tailrace_spark.job.metrics import StreamMetrics
from tailrace_spark.job.offsets import Offsets, PlannedOffsets
from tailrace_spark.job.runner import MissingPackagesError, Runner, missing_packages
from tailrace_spark.job.snapshot_context import SnapshotContext, read_back_of, takes_totals
from tailrace_spark.job.snapshot_notes import REQUESTS, Notes, SnapshotNotes
from tailrace_spark.job.snapshot_writing import ReadRound, RoundWriter, Written, read_round
from tailrace_spark.sinks.protocol import Sink
from tailrace_spark.snapshot.progress import Snapshots, State, TableSnapshot, status_row
from tailrace_spark.snapshot.ranges import Split, again, next_least, plan_round, union
from tailrace_spark.snapshot.read_back import ReadBack
from tailrace_spark.snapshot.reading import UnreadableError
from tailrace_spark.snapshot.stream_rows import RoundPosition
from tailrace_spark.source.kafka import reads_topic
from tailrace_spark.streams.assign import SNAPSHOT_MARK

log = logging.getLogger("tailrace_spark")

_WAITS: Final = Waits(0.5, 30.0)
_LOOK_SECONDS: Final = 1.0
_TABLES_SECONDS: Final = 5.0
"""Between two looks for the first table of a subscription."""
_STRICT_ATTEMPTS: Final = 5
"""Attempts at a round in which ranges are read at the replicas planned, so that limits hold."""

_PASSING: Final = (ServiceError, PySparkException, Py4JJavaError)
"""What may be over at the next attempt."""
T = TypeVar("T")


class SnapshotRun:
    """Reads a stream's snapshots, by one thread at a time. `alone` is held while the sink is used.

    `own_notes`: the stream decides what becomes of existing rows. Else whoever keeps the notes has, and shows it.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        sink: Sink,
        notes: Notes,
        context: SnapshotContext,
        writer: RoundWriter,
        planned: PlannedOffsets,
        *,
        own_notes: bool,
        alone: threading.Lock,
        metrics: StreamMetrics,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._sink = sink
        self._refuses = refused_by(sink.capabilities)
        self._notes = notes
        # Its own: an application may run many streams, and a group is cancelled as a whole.
        self._group = f"tailrace-snapshot-{uuid4().hex[:12]}"
        self._context = context
        self._writer = writer
        self._planned = planned
        self._own_notes = own_notes
        self._alone = alone
        self._metrics = metrics
        self._stop = threading.Event()
        self._clock = clock
        self._timer = timer
        self._reading = False
        self._failures = 0
        self._value: Snapshots | None = None
        self._entry: SchemaEntry | None = None
        self.patience: float | None = None
        """Seconds until an attempt is given up, of a stream that ends by itself; None: never."""

    @property
    def value(self) -> Snapshots:
        """How far all snapshots are. Raises SettingsError for notes of another version."""
        if self._value is None:
            self._value = self._notes.read()
            self._show()
        return self._value

    def decide(self, stream: StreamSettings) -> None:
        """Whether the rows that the tables have are copied; noted before Spark notes where the stream begins.

        A stream that dies in between would else be taken for one that began without them.
        """
        rows = existing_rows(stream, self.value, started=self._planned.begun(), refused=self._refuses)
        decided = replace(self.value, copies=rows.copied)
        if not self._own_notes:
            self._value = decided
            return
        if decided != self.value:
            self._keep(decided)
        log.info("existing rows: %s", rows)

    def read_back(self) -> ReadBack | None:
        """What reads rows back that the log leaves open, of tables that were read; None where nothing has to be."""
        return read_back_of(self._settings, self._sink, self.value.tables_read)

    @property
    def wanted(self) -> bool:
        """Whether there is something to do. A snapshot begins once Spark has noted where the stream begins."""
        return self.outstanding and self._planned.begun()

    @property
    def outstanding(self) -> bool:
        """Whether a snapshot is to be read, or a command to be taken."""
        return self.value.current() is not None or self.value.unplanned or bool(self._notes.requested())

    def run(self, stop: threading.Event) -> None:
        """Read until all snapshots have ended or are paused, or it is stopped.

        Waits while Cassandra, Kafka or the sink do not answer. Raises ServiceError where patience is at an end.
        """
        self._stop, context = stop, self._spark.sparkContext
        context.setJobGroup(self._group, "snapshot of tables")
        try:
            while not self._stop.is_set() and self._until_done(self.step):
                pass
        except StoppedError:
            log.info("the snapshot is interrupted: it goes on with its last range at the next start")
        finally:
            # This thread may have other jobs later. Spark takes null for no group.
            context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # its types forget it
            self._context.leave_cluster()

    def interrupt(self) -> None:
        """End a round that is being read; one that is being written is finished."""
        if self._reading:
            self._spark.sparkContext.cancelJobGroup(self._group)

    def close(self) -> None:
        """Leave Cassandra and Kafka."""
        self._context.close()

    def step(self) -> bool:
        """Take requests, and read one round; whether there may be more. Raises ServiceError, SettingsError."""
        awaits_table = self.value.unplanned and not self._plan_initial()
        self._take_requests()
        snapshot = self.value.current()
        if snapshot is None:
            return awaits_table and not self._stop.wait(_TABLES_SECONDS)
        try:
            table = self._readable(snapshot)
            if table is not None:
                self._round(snapshot, table)
        except UnreadableError as error:
            self._end(self.value.find(snapshot.id), State.REFUSED, str(error))
        except _PASSING as error:
            if not self._stop.is_set():  # else its job was cancelled
                self._wait(snapshot.id, reason(error))
            raise
        return True

    def _plan_initial(self) -> bool:
        """Whether it is known what is copied: a subscription without a table that has cdc waits for its first."""
        names = [str(table) for table in self._context.tables()]
        if names:
            log.info("existing rows of %s are copied", listed(names))
        elif not self._own_notes:
            return False
        else:
            log.info("no table with cdc = true is there yet, so no existing rows are copied")
        self._keep(self.value.with_initial(names, lambda: uuid4().hex[:12], self._clock()))
        return True

    def _wait(self, snapshot_id: str, words: str) -> None:
        """Note why a table cannot be read now. The others are read meanwhile."""
        value = self.value.waiting(snapshot_id, words)
        if value != self.value:
            self._keep(value)

    def _take_requests(self) -> None:
        for name, request in self._notes.requested():
            self._keep(self.value.take(request, self._clock()))
            self._notes.take(name)
            log.info("snapshot of %s: %s, as asked for by a command", request.table, request.action)

    def _readable(self, snapshot: TableSnapshot) -> Table | None:
        """The table as it is now; None where nothing more comes of its snapshot, which is noted.

        Raises UnreadableError where Cassandra masks some of it.
        """
        table = self._context.find(snapshot.table)
        if table is None or snapshot.table_id not in (None, table.id.hex):
            self._context.require_agreement()  # a node that comes back may not have heard of the table yet
        if self._refuses is not None:
            self._end(snapshot, State.REFUSED, self._refuses)
        elif table is None:
            self._end(snapshot, State.DROPPED, f"there is no table {snapshot.table} in Cassandra (any more)")
        elif snapshot.table_id not in (None, table.id.hex):
            reason = f"{snapshot.table} was dropped and created again: `tailrace snapshot start` reads the new table"
            self._end(snapshot, State.DROPPED, reason)
        elif table.is_counter and not takes_totals(self._sink):
            reason = f"{snapshot.table} has counters: this sink takes no totals, which CQL shows (docs/snapshots.md)"
            self._end(snapshot, State.REFUSED, reason)
        else:
            try:
                self._context.require_readable(table, snapshot.where)
            except SettingsError as error:  # of what was asked for this table alone
                self._end(snapshot, State.REFUSED, str(error))
            else:
                return table
        return None

    def _round(self, snapshot: TableSnapshot, table: Table) -> None:
        ring = self._context.ring(table)
        if snapshot.began is None:
            snapshot = self._begin(snapshot, table)
        if snapshot.round is not None:
            slots = again(ring.owned, snapshot.round.slots)
        else:
            limits = replace(self._context.limits, least_splits=snapshot.least)
            slots = plan_round(ring.owned, ring.estimates, limits, snapshot.remaining)
            if not slots:
                self._end(snapshot, State.DONE, "")
                return
            snapshot = snapshot.planned([union(piece.range for piece in pieces) for pieces in slots])
            self._keep(self.value.put(snapshot))
        self._read_and_write(snapshot, table, slots)

    def _begin(self, snapshot: TableSnapshot, table: Table) -> TableSnapshot:
        """Note where the log is: what is written from here on comes by it."""
        topic = self._context.entry(table).topic
        generation = int(self._context.generations().timestamps[-1])
        started = snapshot.begun(table.id.hex, self._clock(), self._context.log_ends([topic]), generation)
        started = replace(started, least=self._context.limits.least_splits)
        self._keep(self.value.put(started))
        if not table.cdc:
            log.warning("%s has cdc = false: the sink gets its snapshot, and no later writes", table)
        log.info("%s: its snapshot begins", table)
        return started

    def _read_and_write(self, snapshot: TableSnapshot, table: Table, slots: list[tuple[Split, ...]]) -> None:
        noted = snapshot.round
        if noted is None:
            raise ValueError(f"{table}: no round is planned")
        began = time.monotonic()
        entry = self._context.entry(table)
        partitions = self._context.partitions_of(entry.topic)
        if self._sink.capabilities.ordered:
            # A sink that appends leaves out what it has by place, so a snapshot has some of its own.
            entry = replace(entry, topic=f"{entry.topic}{SNAPSHOT_MARK}{snapshot.id}")
        entry = self._same_object(entry)
        round_position = RoundPosition(entry.topic, noted.number, partitions)
        # A node that only tasks cannot reach would hold up its ranges for ever.
        stays = self._failures < _STRICT_ATTEMPTS
        reader = self._context.reader(table, snapshot.where, slots, round_position, stays=stays)
        self._reading = True
        try:
            with read_round(self._spark, reader) as read:
                self._reading = False
                # A table that was dropped while it was read must not come out as the next one of its name.
                if self._context.find(snapshot.table) != table:
                    log.info("%s was altered, or dropped, while it was read: the range is read again", table)
                    return
                ends = self._ends(round_position)
                written = Written(
                    read,
                    round_position,
                    {entry.schema_id: entry},
                    self._context.generations(),
                    ends,
                )
                summary = self._writer.write(written, self._into_sink)
                self._written(snapshot, read, time.monotonic() - began, summary)
        finally:
            self._reading = False

    def _same_object(self, entry: SchemaEntry) -> SchemaEntry:
        """That of the round before, where nothing has changed: sinks keep what they make of a definition by identity.

        They keep it for good, and so would the driver and each worker process have it once more for each round.
        """
        last = self._entry
        if last is None or (last, last.announced) != (entry, entry.announced):
            self._entry = entry
            return entry
        return last

    def _written(self, snapshot: TableSnapshot, read: ReadRound, seconds: float, summary: Summary) -> None:
        least = next_least(snapshot.least, self._context.limits.split_octets, read.largest)
        self._failures = 0
        done = snapshot.written(read.rows, read.octets, seconds, least)
        self._keep(self.value.put(done))
        if summary.dead_letters:
            self._metrics.set_aside(summary.dead_letters)
            log.warning(
                "%s: %d rows of its snapshot are dead letters; %s has the reasons",
                snapshot.table, summary.dead_letters, self._metrics.sink_info.letters_command,
            )  # fmt: skip
        log.debug("%s: %.1f %% are read, %d rows", snapshot.table, 100 * done.share, done.rows)

    def _ends(self, position: RoundPosition) -> Offsets:
        """The offsets behind a round, for the sink's tasks; of a topic's own partitions those of the log."""
        keys = [(position.topic, partition) for partition in range(position.partitions)]
        if self._sink.capabilities.ordered:
            return dict.fromkeys(keys, position.end)
        _, log_offsets = self._planned.committed()
        return {key: log_offsets.get(key, 0) for key in keys}

    def _end(self, snapshot: TableSnapshot, state: State, reason: str) -> None:
        ended = snapshot.over(state, self._clock(), reason)
        self._keep(self.value.put(ended))
        if state is State.DONE:
            log.info("%s: its snapshot is done, %d rows in %d ranges", ended.table, ended.rows, ended.ranges)
        else:
            log.error("the snapshot of %s has ended, and its other rows are not read: %s", ended.table, reason)

    def _keep(self, value: Snapshots) -> None:
        """Note it beside the checkpoint; it counts once it is there."""
        noted = replace(value, sequence=value.sequence + 1)
        self._notes.write(noted)
        self._value = noted
        self._show()

    def _show(self) -> None:
        tables = () if self._value is None else self._value.tables
        self._metrics.snapshots = [status_row(snapshot) for snapshot in tables]

    def _into_sink(self, use_sink: Callable[[], T]) -> T:
        def alone() -> T:
            with self._alone:
                return use_sink()

        return self._until_done(alone)

    def _until_done(self, attempt: Callable[[], T]) -> T:
        """The attempt's result, after failures with growing pauses. Raises StoppedError, or out of patience."""
        began, backoff = self._timer(), Backoff(_WAITS)
        while True:
            try:
                result = attempt()
                self._metrics.snapshot_blocked = None
                return result
            except _PASSING as error:
                words, (problem, remedy) = _passing(error), problem_and_remedy(error)
                self._failures += 1
                if self.patience is not None and self._timer() - began >= self.patience:
                    limit = f"after {self.patience:g} s (stream.once_wait_seconds)"
                    raise ServiceError(f"the snapshot is given up {limit}: {words}") from error
            pause = backoff.next()
            if not self._stop.is_set():  # else its job was cancelled
                log.warning("%s", with_next_try(f"the snapshot waits: {words}", pause))
                self._metrics.snapshot_waits(problem if remedy else words, remedy)
            if self._stop.wait(pause):
                raise StoppedError("between two attempts")


def _passing(error: Exception) -> str:
    """What may be over at the next attempt, in a line. Raises SettingsError for packages that executors lack."""
    if isinstance(error, PythonException):
        cause = missing_packages(error)
        if isinstance(cause, MissingPackagesError):
            raise SettingsError(f'stream.snapshot: {cause}, or set stream.snapshot = "never"') from error
    # A job of Spark's failed: a worker was killed, or an executor lost, once more than Spark repeats it.
    return reason(error)


def snapshot_run(
    spark: SparkSession,
    settings: Settings,
    sink: Sink,
    runner: Runner,
    planned: PlannedOffsets,
    files: Folder,
    alone: threading.Lock,
    metrics: StreamMetrics,
    notes: Notes | None,
) -> SnapshotRun:
    """The snapshots of a stream into a sink; `files` are those of `<checkpoint>/tailrace`, for the notes by default.

    Raises SettingsError where stream.snapshot asks for what the sink cannot take.
    """
    stream, refuses = settings.stream, refused_by(sink.capabilities)
    if refuses is not None and stream.chooses_snapshot and stream.snapshot != "never":
        raise SettingsError(f'stream.snapshot = "{stream.snapshot}" is not for this sink: {refuses}')
    folder = f"{stream.checkpoint.rstrip('/')}/tailrace/{REQUESTS}"
    return SnapshotRun(
        spark,
        settings,
        sink,
        notes or SnapshotNotes(files, files_in(spark, folder), stream.checkpoint),
        SnapshotContext(spark, settings, reads_topic(spark, settings)),
        RoundWriter(spark, settings, sink, runner),
        planned,
        own_notes=notes is None,
        alone=alone,
        metrics=metrics,
    )


class SnapshotThread:
    """Runs snapshots beside a query, in a thread that lives while there are some."""

    def __init__(self, run: SnapshotRun, clock: Callable[[], float] = time.monotonic) -> None:
        self._run = run
        self._clock = clock
        self._next_look = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def look(self) -> None:
        """Begin where there is something to do. Raises what ended the thread."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if (self._thread is not None and self._thread.is_alive()) or self._clock() < self._next_look:
            return
        self._next_look = self._clock() + _LOOK_SECONDS
        try:
            has_work = self._run.wanted
        except (PySparkException, Py4JJavaError, ServiceError, OSError) as error:
            # The log goes on: what holds up the checkpoint itself ends the query.
            log.warning("could not look for snapshots that are asked for; will retry: %s", reason(error))
            return
        if has_work:
            # It has Spark's local properties of this thread, so that its jobs are of the same scheduler pool.
            self._thread = InheritableThread(target=carried(self._work), name="tailrace-snapshot", daemon=True)
            self._thread.start()

    def join(self) -> None:
        """End it; a round that is being written is finished."""
        self._stop.set()
        if self._thread is not None:
            while self._thread.is_alive():
                self._run.interrupt()
                self._thread.join(1.0)

    def _work(self) -> None:
        try:
            self._run.run(self._stop)
        except Exception as error:
            self._failure = error
