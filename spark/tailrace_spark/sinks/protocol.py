"""What a sink is: it plans the writing of micro-batches, and says by its `capabilities` what it can do besides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from tailrace_schemas.change import Change
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import WHOLE, CommitMessage, MicroBatch, Piece, SinkProgress, Summary
from tailrace_spark.merge.condition import RowFilters
from tailrace_spark.merge.stored_row import RowKey
from tailrace_spark.rowstate.partition import Clustering
from tailrace_spark.rowstate.row import RowState

Definitions = Sequence[tuple[int, Table]]
"""Definitions of tables with their offsets in `.schemas`, in that order."""

Follows = Callable[[Table], bool]
"""Whether a stream follows a table, by its name."""

Needed = Callable[[], Definitions]
"""Gives the definitions of a batch's records, which may have to be read for that: not every sink needs them."""
OF_NO_STREAM: Final = MicroBatch("", -1, here=True, fences=False)
"""A batch that no stream reads: repairs, and what tests write."""
AGAIN: Final = replace(OF_NO_STREAM, again=True)
"""A batch of dead letters' changes."""


def nothing_needed() -> Definitions:
    """Of a batch whose changes bring what they need."""
    return ()


def follows_all(table: Table) -> bool:
    """Of a store that one stream has to itself."""
    del table
    return True


def follow(sink: Sink, follows: Follows) -> None:
    """Have a sink see to these tables alone, before anything is written, where it sees to more than it is given."""
    if (following := sink.capabilities.following) is not None:
        following.follow(follows)


def follows_none(table: Table) -> bool:
    """Of whoever writes some rows beside streams."""
    del table
    return False


class Sink(Protocol):
    """Where a stream writes. tests/unit/spark/sinks/contract.py says what each implementation must do.

    A micro-batch is taken in whole or not at all (but see UpdateSink), and one that comes again, whole or with others,
    changes nothing more. What one table's changes raise is that table's, unless the store does not answer. They are
    set aside or kept, and all other tables' go in (table_faults).
    One thread at a time calls it. `close` may be called more than once.
    """

    def batch_write(self, batch: MicroBatch, needed: Needed = nothing_needed) -> BatchWrite:
        """Begin to write a batch, and make ready what the definitions need that executors will meet.

        A batch that was not committed is redelivered, with the same or more records, here or by executors. Raises
        HereOnlyError, FencedError, and ServiceError.
        """

    def close(self) -> None: ...

    @property
    def capabilities(self) -> Capabilities:
        """The same as long as the sink is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a sink can do besides writing: under each name who can, mostly the sink; None where it cannot.

    `executors`: its writers can be brought to executors. `ordered`: it wants a micro-batch's changes by topic, then
    partition, then offset. So each key's changes come in their order, and a batch that comes again comes in the same
    order. `logs_changes`: it keeps each change as it was
    written, and makes no rows of them. So a filter may leave a change out by what it writes. `transactions`: it is
    given updates whole, as an UpdateSink is, and each change with its transaction.
    """

    claimed: ClaimedSink | None = None
    sweeping: SweepingSink | None = None
    following: FollowingSink | None = None
    progress: ProgressSink | None = None
    watermarks: WatermarkedSink | None = None
    whole_updates: UpdateSink | None = None
    comparable: ComparableSink | None = None
    filtering: RowFilteringSink | None = None
    trial: TrialSink | None = None
    executors: bool = False
    ordered: bool = False
    logs_changes: bool = False
    transactions: bool = False


class ReachableSink(Sink, Protocol):
    """A sink that can be tried before anything is written."""

    def reach(self) -> None:
        """Connect, and write nothing. Raises ServiceError where the store does not answer or refuses."""


class TrialSink(Protocol):
    """A sink that can be asked whether it may do to its store all that a stream will ask of it."""

    def try_out(self) -> str:
        """Do all of that and undo it; what is to be known of the store, or nothing.

        Raises ServiceError where the store refuses, SettingsError where it has another version's.
        """


class ClaimedSink(Protocol):
    """A sink whose store refuses what a former owner of a name writes, of a batch that it began before too.

    Its writers write under that name too, whatever stream their batch is of.
    """

    def claim(self, name: str) -> None:
        """Write under this name from now on; a store may be asked now, or at its next use.

        Whoever wrote under it before is refused from the next use of the store on: FencedError, TakenError of files.
        """


class SweepingSink(Sink, Protocol):
    """A sink in which some of what was written changes by time alone: what expires.

    `sweep` brings it up to date by the sink's clock, and returns how many rows that changed. It is called every few
    seconds, never while a batch is written. Raises ServiceError as writing does.
    """

    def sweep(self) -> int: ...


class FollowingSink(Protocol):
    """A sink into whose store other streams may write other tables, by filters of their own."""

    def follow(self, follows: Follows) -> None:
        """See to these tables alone beside what is written: sweep them, and write what waits of them.

        Called before anything is written; else the sink sees to all.
        """


class ProgressSink(Protocol):
    """A sink that keeps, beside the rows, how far each stream is in it: a backup of its store has both.

    Neither is called while a batch is written; both raise ServiceError as writing does.
    """

    def progress(self, stream: str) -> SinkProgress | None:
        """What was kept of a stream last; None where nothing is."""

    def keep_progress(self, progress: SinkProgress) -> None:
        """Keep it, in place of what was kept of this stream. Called once all of its last batch is written."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """Everything that was written into a table before `complete_until` (milliseconds since 1970) is in the sink; None
    where no such time is known yet. `waits_for` says why it is not later."""

    table: Table
    complete_until: int | None
    waits_for: str = ""


class WatermarkedSink(Protocol):
    """A sink that makes ready what a table needs before its first change, and tells its readers how far it is complete.

    `announce` takes definitions with their offsets in `.schemas`, in that order. It is called at the stream's start
    and when there are more. It raises ServiceError as writing does, with the others made ready. `lateness_ms` is how
    long after its write time a change may reach its replicas and still be covered. `complete` is called behind the
    batches that it covers, and raises ServiceError as writing does. Neither is called while a batch is written.
    """

    def announce(self, definitions: Iterable[tuple[int, Table]]) -> None: ...

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
    """A sink whose rows can be held against the source. All raise ServiceError as writing does."""

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


class DataWriter(Protocol):
    """What writes a share. It is pickled unless the batch is `here`, and shown to nobody: it may have secrets.

    Two attempts may write one Kafka partition's share at once: a repeated task and the one that Spark has given up,
    or two speculative ones. The result must be as if one had written it. What a worker process keeps
    between shares may be stale.
    """

    def write(self, share: KafkaPartition, pieces: Iterable[Piece]) -> CommitMessage:
        """Take in a share, all or none of it; one of a Kafka partition comes by offset.

        Raises HereOnlyError where only the driver can take the records in, FencedError where a later batch fences this
        one. Raises ServiceError when the store does not answer; the batch is then delivered again.
        """


def summed(messages: Sequence[CommitMessage]) -> Summary:
    """What became of a batch whose shares count when they are written."""
    return sum((message.summary for message in messages), Summary())


@dataclass(frozen=True, slots=True)
class BatchWrite:
    """The writing of one batch: the `writer` of its shares, and what the driver calls once all of them are written.

    `commit` makes count what the writer wrote, as far as it does not yet, and says what became of the whole batch.
    """

    writer: DataWriter
    commit: Callable[[Sequence[CommitMessage]], Summary] = summed


@dataclass(frozen=True, slots=True)
class HereWriter:
    """Writes the share of a batch that is `here`, by the sink itself."""

    take: Callable[[Iterable[Piece]], Summary]

    def write(self, share: KafkaPartition, pieces: Iterable[Piece]) -> CommitMessage:
        """As DataWriter says."""
        return CommitMessage(share, self.take(pieces))


def here(take: Callable[[Iterable[Piece]], Summary]) -> BatchWrite:
    """The writing of a batch that is `here`, by the sink itself."""
    return BatchWrite(HereWriter(take))


class HereOnlyError(Exception):
    """An executor cannot write its share, and the words say why: the batch is written here. It can be pickled.

    It is no fault of a table or of the store.
    """


def write_here(sink: Sink, pieces: Iterable[Piece], batch: MicroBatch = OF_NO_STREAM) -> Summary:
    """Write a batch that is `here`; what became of it. Raises what the sink does."""
    plan = sink.batch_write(batch)
    return plan.commit([plan.writer.write(WHOLE, pieces)])
