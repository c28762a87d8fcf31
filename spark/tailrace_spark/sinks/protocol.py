"""What every sink takes: pieces of a micro-batch, each change with its place in Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from tailrace_schemas.change import Change
from tailrace_schemas.streams import Assignment
from tailrace_schemas.table import Table
from tailrace_spark.sink_progress import SinkProgress
from tailrace_spark.sinks.row_image import Imaged

At = tuple[str, int, int]
"""Topic, partition and offset."""


@dataclass(frozen=True, slots=True)
class Place:
    """A record's place in Kafka, and the id of its writer's schema (empty where its frame was not readable)."""

    topic: str
    partition: int
    offset: int
    schema_id: bytes = b""

    @property
    def at(self) -> At:
        """What names it, whatever its schema."""
        return self.topic, self.partition, self.offset


@dataclass(frozen=True, slots=True)
class Delivered:
    """One change, as it was read from its place, and its stream; None where Spark could not tell its token.

    Of two definitions of a table the newer has the larger `announced`, the schema's offset in `.schemas`. `others` are
    the streams for more write times of the change, in microseconds: those that an UpdateSink asks by. `message` is the
    record's value, for a dead letter. `images` are there where a sink was asked for them.
    """

    place: Place
    change: Change
    assignment: Assignment | None = None
    announced: int = -1
    others: tuple[tuple[int, Assignment], ...] = ()
    message: bytes = field(default=b"", repr=False)
    images: Imaged | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One record that cannot be merged: where it is, why, and its bytes, where whoever sets it aside has them."""

    place: Place
    reason: str
    message: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a micro-batch that fits into memory: changes in any order, and records that were no changes."""

    changes: tuple[Delivered, ...]
    dead_letters: tuple[DeadLetter, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """What became of a micro-batch: changes merged, rows whose state changed, records set aside.

    `held` changes are kept until the store takes those of their table again. `refused` says by "keyspace.table" why
    changes of a table were set aside or kept; of several reasons the last.
    """

    changes: int = 0
    rows: int = 0
    dead_letters: int = 0
    held: int = 0
    refused: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __add__(self, other: Summary) -> Summary:
        return Summary(
            self.changes + other.changes,
            self.rows + other.rows,
            self.dead_letters + other.dead_letters,
            self.held + other.held,
            {**self.refused, **other.refused},
        )


class Sink(Protocol):
    """Where a stream writes. tests/unit/spark/sinks/contract.py says what each implementation must do.

    `write` takes in all pieces of one micro-batch or none of them (but see UpdateSink); a batch delivered again, whole
    or with others, changes nothing more. It raises ServiceError when the store does not answer; the batch is then
    delivered again. What one table's changes raise, of any other type, is that table's: they are set aside or kept, and
    all other tables' go in (table_faults).
    One thread at a time calls it. `close` may be called more than once.
    """

    def write(self, pieces: Iterable[Piece]) -> Summary: ...

    def close(self) -> None: ...


class ReachableSink(Sink, Protocol):
    """A sink that can be tried before anything is written."""

    def reach(self) -> None:
        """Connect, and write nothing. Raises ServiceError where the store does not answer or refuses."""


@runtime_checkable
class SweepingSink(Sink, Protocol):
    """A sink in which some of what was written changes by time alone: what expires.

    `sweep` brings it up to date by the sink's clock, and says how many rows that changed; it is called every few
    seconds, never while `write` is. Raises ServiceError as `write` does.
    """

    def sweep(self) -> int: ...


@runtime_checkable
class LetterSink(Sink, Protocol):
    """A sink that keeps its dead letters where they can be read and written again.

    Both raise ServiceError as `write` does.
    """

    def letters(self, after: Place | None, most: int) -> Sequence[DeadLetter]:
        """So many at most, by topic, partition and offset, behind a place; all of them from None on."""

    def write_again(self, letters: Sequence[DeadLetter], pieces: Iterable[Piece]) -> Summary:
        """Let go of these letters and take in the pieces made of them, together or not at all.

        What is set aside again is a letter again.
        """


@runtime_checkable
class ProgressSink(Sink, Protocol):
    """A sink that keeps, beside the rows, how far each stream is in it: a backup of its store has both.

    Neither is called while `write` is; both raise ServiceError as `write` does.
    """

    def progress(self, stream: str) -> SinkProgress | None:
        """What was kept of a stream last; None where nothing is."""

    def keep_progress(self, progress: SinkProgress) -> None:
        """Keep it, in place of what was kept of this stream. Called once all of its last batch is written."""


@runtime_checkable
class AnnouncedSink(Sink, Protocol):
    """A sink that makes ready what a table needs before its first change.

    `announce` takes definitions with their places in `.schemas`, in that order; it is called at the stream's start and
    when there are more, never while `write` is. Raises ServiceError as `write` does, with the others made ready.
    """

    def announce(self, definitions: Iterable[tuple[int, Table]]) -> None: ...


@dataclass(frozen=True, slots=True)
class Watermark:
    """Everything that was written into a table before `complete_until` (milliseconds since 1970) is in the sink; None
    where no such time is known yet. `waits_for` says why it is not later."""

    table: Table
    complete_until: int | None
    waits_for: str = ""


@runtime_checkable
class WatermarkedSink(AnnouncedSink, Protocol):
    """A sink that tells its readers how far it is complete.

    `lateness_ms` is how long after its write time a change may reach its replicas and still be covered. `complete` is
    called behind the batches that it covers, never while `write` is. Raises ServiceError as `write` does.
    """

    @property
    def lateness_ms(self) -> int: ...

    def complete(self, watermarks: Iterable[Watermark]) -> None: ...


@runtime_checkable
class OrderedSink(Sink, Protocol):
    """A sink that is given the changes of a micro-batch by place: by topic, then partition, then offset.

    So each key's changes come in their order, and a batch that comes again comes in the same order. `in_order` is true.
    `has_images` where it makes rows of the changes that it is given, before and after each.
    """

    in_order: bool

    @property
    def has_images(self) -> bool: ...


@runtime_checkable
class UpdateSink(Sink, Protocol):
    """A sink that needs table updates whole: it is given pieces of tailrace_spark.updates.

    All changes of one mutation's update of a table stand together in one piece, with the streams of all times that
    `write_times` (microseconds) says of them. Its store may have no transactions: what raises ServiceError may have
    been taken in in part; the batch is then written again from its beginning, and every row must come out as before.
    """

    def write_times(self, change: Change) -> Iterable[int]: ...
