"""What a sink is: it takes the pieces of micro-batches, and says by its `capabilities` what it can do besides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tailrace_schemas.change import Change
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.batch.sink_progress import SinkProgress
from tailrace_spark.batch.task_batch import ForDriverError, PartitionResult, TaskBatch
from tailrace_spark.merge.row_filter import RowFilters
from tailrace_spark.merge.stored_row import RowKey
from tailrace_spark.rowstate.partition import Clustering
from tailrace_spark.rowstate.row import RowState


class Sink(Protocol):
    """Where a stream writes. tests/unit/spark/sinks/contract.py says what each implementation must do.

    `write` takes in all pieces of one micro-batch or none of them (but see UpdateSink). A batch delivered again, whole
    or with others, changes nothing more. It raises ServiceError when the store does not answer; the batch is then
    delivered again. What one table's changes raise, of any other type, is that table's: they are set aside or kept, and
    all other tables' go in (table_faults).
    One thread at a time calls it. `close` may be called more than once.
    """

    def write(self, pieces: Iterable[Piece]) -> Summary: ...

    def close(self) -> None: ...

    @property
    def capabilities(self) -> Capabilities:
        """The same as long as the sink is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a sink can do besides `write`: under each name the sink as one that can; None where it cannot.

    `ordered`: it wants the changes of a micro-batch by topic, then partition, then offset. So each key's changes come
    in their order, and a batch that comes again comes in the same order. `logs_changes`: it keeps each change as it was
    written, and makes no rows of them. So a filter may leave a change out by what it writes. `transactions`: it is
    given updates whole, as an UpdateSink is, and each change with its transaction.
    """

    claimed: ClaimedSink | None = None
    sweeping: SweepingSink | None = None
    again: AgainSink | None = None
    progress: ProgressSink | None = None
    announcements: AnnouncedSink | None = None
    watermarks: WatermarkedSink | None = None
    whole_updates: UpdateSink | None = None
    tasks: TaskSink | None = None
    comparable: ComparableSink | None = None
    filtering: RowFilteringSink | None = None
    trial: TrialSink | None = None
    ordered: bool = False
    logs_changes: bool = False
    transactions: bool = False


class ReachableSink(Sink, Protocol):
    """A sink that can be tried before anything is written."""

    def reach(self) -> None:
        """Connect, and write nothing. Raises ServiceError where the store does not answer or refuses."""


class TrialSink(Sink, Protocol):
    """A sink that can be asked whether it may do to its store all that a stream will ask of it."""

    def try_out(self) -> str:
        """Do all of that and undo it; what is to be known of the store, or nothing.

        Raises ServiceError where the store refuses, SettingsError where it has a later version's.
        """


class ClaimedSink(Sink, Protocol):
    """A sink whose store refuses what a former owner of a name writes, of a batch that it began before too.

    Its tasks write under that name too, whatever stream their batch is of.
    """

    def claim(self, name: str) -> None:
        """Write under this name from now on; nothing is asked of the store yet.

        Whoever wrote under it before is refused from the next use of the store on: FencedError.
        """


class SweepingSink(Sink, Protocol):
    """A sink in which some of what was written changes by time alone: what expires.

    `sweep` brings it up to date by the sink's clock, and returns how many rows that changed. It is called every few
    seconds, never while `write` is. Raises ServiceError as `write` does.
    """

    def sweep(self) -> int: ...


class AgainSink(Sink, Protocol):
    """A sink that leaves out by its place what it has written: a dead letter's change has to get through."""

    def write_again(self, pieces: Iterable[Piece]) -> Summary:
        """As `write`, beside a stream that may write. Changes have their own places and write times, and no images: the
        rows before and after are those of another time."""


class ProgressSink(Sink, Protocol):
    """A sink that keeps, beside the rows, how far each stream is in it: a backup of its store has both.

    Neither is called while `write` is; both raise ServiceError as `write` does.
    """

    def progress(self, stream: str) -> SinkProgress | None:
        """What was kept of a stream last; None where nothing is."""

    def keep_progress(self, progress: SinkProgress) -> None:
        """Keep it, in place of what was kept of this stream. Called once all of its last batch is written."""


class AnnouncedSink(Sink, Protocol):
    """A sink that makes ready what a table needs before its first change.

    `announce` takes definitions with their offsets in `.schemas`, in that order. It is called at the stream's start
    and when there are more, never while `write` is. Raises ServiceError as `write` does, with the others made ready.
    """

    def announce(self, definitions: Iterable[tuple[int, Table]]) -> None: ...


@dataclass(frozen=True, slots=True)
class Watermark:
    """Everything that was written into a table before `complete_until` (milliseconds since 1970) is in the sink; None
    where no such time is known yet. `waits_for` says why it is not later."""

    table: Table
    complete_until: int | None
    waits_for: str = ""


class WatermarkedSink(AnnouncedSink, Protocol):
    """A sink that tells its readers how far it is complete.

    `lateness_ms` is how long after its write time a change may reach its replicas and still be covered. `complete` is
    called behind the batches that it covers, never while `write` is. Raises ServiceError as `write` does.
    """

    @property
    def lateness_ms(self) -> int: ...

    def complete(self, watermarks: Iterable[Watermark]) -> None: ...


class UpdateSink(Sink, Protocol):
    """A sink that needs table updates whole: it is given pieces of tailrace_spark.source.table_updates.

    All changes of one mutation's update of a table stand together in one piece, with the streams of all their
    `write_times` (microseconds). Its store may have no transactions: of a batch that raises ServiceError a part may be
    written. The batch is then written again from its beginning, and every row must be as before. Where tasks
    write, `write_times` is a function that can be pickled.
    """

    def write_times(self, change: Change) -> Iterable[int]: ...


@dataclass(frozen=True, slots=True)
class StoredVisible:
    """A row or static row as a sink has it: its key (merge.stored_row), its state, and whether readers see it.

    `state` is None for a row that readers see and of which nothing else is stored. `clustering` are the clustering
    columns as readers see them.
    """

    row_key: RowKey
    state: RowState | None
    visible: bool
    clustering: tuple[object, ...]


class ComparableSink(Sink, Protocol):
    """A sink whose rows can be held against the source. All raise ServiceError as `write` does."""

    def stored(self, table: Table) -> Iterator[StoredVisible]:
        """All rows and static rows that it has of a table, in no order; none where it does not follow it."""

    def amend(self, table: Table, states: Mapping[RowKey, RowState], to_show: Mapping[RowKey, Clustering]) -> None:
        """Merge these states into stored rows, which take away at most. Show those `to_show` again, as they are stored.

        Rows that readers see and of which nothing is stored go, where they have a state here.
        """


class RowFilteringSink(Sink, Protocol):
    """A sink that can be asked for rows by columns outside the key, as it knows whole rows.

    A row that ceases to match goes, and one that begins to match comes with all its columns. What it stores of rows
    that do not match makes that possible. A log of changes with images has images as if there were no other rows, and
    changes that have some. A table that does not fit the filters is refused as table_faults says.
    """

    def filter_rows(self, filters: RowFilters) -> None:
        """Called before anything is written; the same filters as long as the sink has rows."""


class TaskSink(Sink, Protocol):
    """A sink whose batches Spark's executors can write: the driver plans and commits, tasks write.

    `plan`, then each Kafka partition's `write` in some task, then `commit` with all their results. A batch of which
    this was not finished comes again, in tasks or by `Sink.write`, with the same or more records. `plan` and `commit`
    are called on the driver, by one thread at a time, and raise ServiceError as `Sink.write` does.
    """

    def fence(self, stream: str) -> None:
        """Have no task that was planned so far for this stream commit anything once this returns.

        Called before `write` takes a batch in, where tasks may be left of an earlier batch or driver.
        """

    def plan(self, batch: TaskBatch, definitions: Sequence[tuple[int, Table]]) -> PartitionTask:
        """Make ready what the definitions need (with their offsets in `.schemas`, in that order), and give the task.

        Tasks of earlier plans of the stream are fenced.
        """

    def commit(self, batch: TaskBatch, results: Sequence[PartitionResult]) -> Summary:
        """Make what the tasks wrote count, as far as it does not yet; what became of the whole batch."""


class PartitionTask(Protocol):
    """The half of a sink that writes in a task; it is pickled, and shown to nobody: it may have secrets.

    Neither it nor its results have values of compiled classes, such as Table: these cannot be pickled.

    Two attempts may write one Kafka partition's records at once: a repeated task and the one that Spark has given up,
    or two speculative ones. The result must be as if one had written it. What a worker process keeps
    between tasks may be stale.
    """

    def write(self, partition: KafkaPartition, pieces: Iterable[Piece]) -> PartitionResult:
        """Take in a batch's records of one Kafka partition, which come by offset, all or none of them.

        Raises UnpreparedError where the plan has not made ready what a change needs, DriverOnlyError where only
        `Sink.write` can take the records in. Raises FencedError where the stream has a newer plan, ServiceError as
        `Sink.write` does.
        """


class UnpreparedError(ForDriverError):
    """A task meets a definition that no plan has made ready: it is planned again with it."""


class DriverOnlyError(ForDriverError):
    """A task meets what only the driver can write, and says what: it writes the batch. It can be pickled."""
