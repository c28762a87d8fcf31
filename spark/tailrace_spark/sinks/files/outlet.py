"""Files of changes by table and day: each is written whole, under a name that says where its changes stand in Kafka."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import uuid4

from tailrace_schemas.change import Op
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import (
    CommitMessage,
    DeadLetter,
    MicroBatch,
    Piece,
    RecordId,
    SinkProgress,
    Summary,
    progress_from_json,
    progress_to_json,
)
from tailrace_spark.sinks.changelog.routes import day_of
from tailrace_spark.sinks.changelog.sink import (
    Batch,
    ChangeLogSink,
    LogShares,
    OutgoingRecord,
    RecordForms,
    ShareImaging,
    emit,
)
from tailrace_spark.sinks.files.formats import (
    FileName,
    FormatWriter,
    directory_of,
    new_writer,
    offsets_of,
    source_of,
    suffix_of,
)
from tailrace_spark.sinks.files.settings import FilesSinkSettings
from tailrace_spark.sinks.files.store import FileStore, Reach, TakenError, answering, read_reach, write_reach
from tailrace_spark.sinks.images.store import ImageStore
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.protocol import Capabilities, HereOnlyError, Needed
from tailrace_spark.sinks.table_faults import TableRefusedError, in_halves, is_of_table, reason_of

log = logging.getLogger("tailrace_spark")

# Of all files together, what memory holds; of one file, what a row group is made of at most.
_BUFFERED_RECORDS: Final = 20_000
_STREAMS: Final = "_tailrace/streams/{}.json"


class AgainBatch(Batch):
    """Changes of letters: each has a file of its own, of the same name however often it is tried."""

    def __init__(self, store: FileStore, settings: FilesSinkSettings, letters: Letters) -> None:
        super().__init__()
        self._store = store
        self._settings = settings
        self._letters = letters
        self._name = f"replay-{uuid4().hex}"
        self._store.begin(self._name)
        self._staged: dict[str, str] = {}

    def put(self, record: OutgoingRecord) -> None:
        record_id, table, settings = record.record_id, record.change.table, self._settings
        with _not_overtaken():
            staged, stream = self._store.stage(self._name)
        with answering(staged):
            writer = new_writer(settings, stream, table)
            writer.write([record])
            writer.close()
        name = FileName(source_of(record_id.key[:2]), record_id.offset, None).with_suffix(suffix_of(settings))
        self._staged[f"{directory_of(table, day_of(record.written))}/{name}"] = staged

    def commit(self) -> Summary:
        self._letters.put(self.aside)
        with _not_overtaken():
            for path, staged in sorted(self._staged.items()):
                self._store.place(self._name, staged, path)
            self._store.take_away(self._name)
        return Summary(rows=len(self._staged), dead_letters=len(self.aside))


@contextmanager
def _not_overtaken() -> Iterator[None]:
    """A stream that begins, or has to write a batch again, ends a replay that is under way."""
    try:
        yield
    except TakenError:
        raise ServiceError("a stream has begun to write there meanwhile: run this again") from None


@dataclass(frozen=True, slots=True)
class FileLimits:
    """A file gets so many records at a time, and so many files are open: a backfill may touch years of days at once.
    One that is ended early is just a smaller file. `buffered_bytes`: so much of values waits in memory."""

    group_records: int = 5_000
    open_files: int = 64
    buffered_bytes: int = 32 << 20


FILE_LIMITS: Final = FileLimits()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One writing of a batch, on the driver or by tasks: its directory below the root, and the reach before it."""

    name: str
    reach: Reach


class FilesOutlet(LogShares):
    """Writes batches on the driver, and begins the attempts of executors: what they write is in place when they end."""

    def __init__(
        self,
        store: FileStore,
        settings: FilesSinkSettings,
        limits: FileLimits = FILE_LIMITS,
        letters: Letters = LOGGED,
    ) -> None:
        self.store = store
        self.settings = settings
        self.letters = letters
        self._limits = limits
        self._name: str | None = None
        self._is_done = False
        self._reach: Reach | None = None

    def reach(self) -> None:
        """See that the root may be written, and list it."""
        self.store.reach()

    def progress(self, stream: str) -> SinkProgress | None:
        path = _STREAMS.format(stream)
        return progress_from_json(self.store.read(path).decode()) if self.store.exists(path) else None

    def keep_progress(self, progress: SinkProgress) -> None:
        self.store.write(_STREAMS.format(progress.stream), progress_to_json(progress).encode())

    def begin(self, batch: MicroBatch) -> Batch:
        """As Outlet says."""
        if batch.again:
            return AgainBatch(self.store, self.settings, self.letters)
        return FilesBatch(self.store, self.settings, self.attempt(), self.letters, self._limits, self)

    def claim(self, name: str) -> None:
        """As ClaimedSink says: below a root one writes, whatever its name."""
        del name
        if self._name is None:
            self.attempt()
            self._is_done = True  # nothing is written in it yet: the first batch goes on in it

    def attempt(self) -> Attempt:
        """Begin one. Files of an earlier one that was not finished cannot be placed any more, nor those of another
        stream. Raises TakenError where another stream has begun since the last one."""
        if self._name is not None:
            self.store.require(self._name)
        if self._name is None or not self._is_done:
            name = uuid4().hex
            self.store.begin(name)
            self._name = name
            self.store.end_others(name)
        self._is_done = False
        if self._reach is None:
            self._reach = read_reach(self.store)
        return Attempt(self._name, self._reach)

    def extend(self, attempt: Attempt, ends: Mapping[KafkaPartition, int]) -> None:
        """Keep that files of an attempt may reach so far. Raises TakenError."""
        former_reach = self._reach or Reach()
        reach = former_reach.with_ends(ends)
        if reach is not former_reach:
            write_reach(self.store, attempt.name, reach)
            self._reach = reach

    def writer(self, batch: MicroBatch, needed: Needed, imaging: ShareImaging | None) -> FilesWriter:
        """As LogShares says."""
        del needed, imaging  # files say their own
        attempt = self.attempt()
        self.extend(attempt, batch.ends)
        return FilesWriter(self.store, self.settings, attempt, self.letters)

    def commit(self, messages: Sequence[CommitMessage] = ()) -> None:
        """As LogShares says: nothing that is still under way for the attempt could write anything else."""
        del messages
        self._is_done = True

    def fence(self) -> None:
        """As LogShares says, by the next attempt: it keeps what is under way for this one from being placed."""
        self._is_done = False

    def close(self) -> None:
        """Nothing is kept open between batches."""


class FilesSink(ChangeLogSink):
    """As ChangeLogSink; its outlet is claimed and keeps progress. Images are merged in one process: by no executor."""

    def __init__(self, outlet: FilesOutlet, imaging: ImageStore | None = None, *, transactions: bool = False) -> None:
        super().__init__(outlet, imaging, outlet, transactions=transactions)
        self._files = outlet

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, claimed=self._files, progress=self._files)


@dataclass(slots=True)
class _Span:
    """The first and the last offset of a partition that some changes have; a mutation's are at its first one's."""

    first: int
    last: int

    def take(self, offset: int) -> None:
        self.first, self.last = min(self.first, offset), max(self.last, offset)


@dataclass(slots=True)
class _Open:
    """A file that is being written, the records that it gets next, and how many it has.

    `table` is that whose identity the file goes by."""

    staged: str
    writer: FormatWriter
    table: Table
    directory: str
    partition: KafkaPartition
    span: _Span
    records: int = 0
    waiting: list[OutgoingRecord] = field(default_factory=list)
    waiting_bytes: int = 0


@dataclass(slots=True)
class _Again:
    """A directory where a partition may have files already.

    Those that begin before the batch `stay`, and the changes at `kept` offsets with them. The batch writes the ones at
    `written`.
    """

    stay: set[str] = field(default_factory=set)
    kept: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)


class FilesBatch(Batch):
    """An attempt at a batch, or at a partition's part of it.

    Files that are there from an earlier attempt are written over where they have the same names. Those of other names
    go: of a batch that ended elsewhere, or was cut otherwise. One that goes beyond the batch goes too, as what it has
    comes with the batches behind this one.
    """

    def __init__(
        self,
        store: FileStore,
        settings: FilesSinkSettings,
        attempt: Attempt,
        letters: Letters,
        limits: FileLimits = FILE_LIMITS,
        driver: FilesOutlet | None = None,
    ) -> None:
        """`driver`: it hears of the reach, and of the end; None in tasks, whose driver knows both."""
        super().__init__()
        self._limits = limits
        self._store = store
        self._settings = settings
        self._attempt = attempt
        self._driver = driver
        self._spans: dict[KafkaPartition, _Span] = {}
        self._open: dict[tuple[KafkaPartition, int, str], _Open] = {}
        self._again: dict[tuple[str, KafkaPartition], _Again] = {}
        self._staged: dict[str, str] = {}
        self._letters = letters
        self._transaction: tuple[bytes, int, str] | None = None
        self._rows = 0
        self._buffered = 0
        self._buffered_bytes = 0
        self._refused: dict[int, tuple[Table, str]] = {}

    def put(self, record: OutgoingRecord) -> None:
        first_id, table = record.first_id, record.change.table
        partition = first_id.topic, first_id.partition
        self._take(first_id)
        if (refused := self._refused.get(id(table))) is not None:
            raise TableRefusedError(refused[1])
        day = self._day(record)
        if first_id.offset < self._attempt.reach.ends.get(partition, 0) and self._is_kept(record, day):
            return
        key = partition, id(table), day
        file = self._open.pop(key, None) or self._new(table, partition, day, first_id.offset)
        self._open[key] = file  # the last one used stands last
        file.span.take(first_id.offset)
        octets = record.octets
        file.waiting.append(record)
        file.waiting_bytes += octets
        self._buffered += 1
        self._buffered_bytes += octets
        if record.transaction is not None and not record.transaction.ends:
            return  # a mutation is in one file
        if len(file.waiting) >= self._limits.group_records:
            self._flush(key)
        if self._buffered >= _BUFFERED_RECORDS or self._buffered_bytes >= self._limits.buffered_bytes:
            for open_key in list(self._open):
                self._flush(open_key)

    def set_aside(self, letter: DeadLetter) -> None:
        self._take(letter.first_id)
        super().set_aside(letter)

    def _take(self, first_id: RecordId) -> None:
        """The batch has it."""
        partition = first_id.topic, first_id.partition
        span = self._spans.get(partition)
        if span is None:
            span = self._spans[partition] = _Span(first_id.offset, first_id.offset)
        span.take(first_id.offset)

    def _day(self, record: OutgoingRecord) -> str:
        """The day of a change; those of a mutation have its first one's."""
        if record.transaction is None:
            return day_of(record.written)
        mutation = record.transaction.id, record.transaction.begins
        if self._transaction is None or self._transaction[:2] != mutation:
            self._transaction = *mutation, day_of(record.written)
        return self._transaction[2]

    def _is_kept(self, record: OutgoingRecord, day: str) -> bool:
        """Whether a file that stays has this change."""
        record_id, directory = record.record_id, directory_of(record.change.table, day)
        partition = record_id.topic, record_id.partition
        if record.change.op is Op.READ:  # a row that a snapshot reads again may be of another day since
            directory = directory_of(record.change.table)
        again = self._again.get((directory, partition))
        if again is None:
            again = self._again[directory, partition] = _Again()
            first = self._spans[partition].first
            for path, name in self._files(directory, partition):
                if name.last is not None and name.first < first <= name.last:
                    again.stay.add(path)
                    with self._store.input(path) as file:
                        again.kept |= offsets_of(file, path)
        if record_id.offset in again.kept:
            return True
        again.written.add(record_id.offset)
        return False

    def _files(self, directory: str, partition: KafkaPartition) -> Iterator[tuple[str, FileName]]:
        """Those of a partition below a directory."""
        for path in self._store.below(directory):
            name = FileName.of(path)
            if name is not None and name.source == source_of(partition):
                yield path, name

    def _new(self, table: Table, partition: KafkaPartition, day: str, offset: int) -> _Open:
        directory = directory_of(table, day)
        if len(self._open) >= self._limits.open_files:
            self._end(next(iter(self._open)))
        stream: Any = None
        try:
            self._store.make(directory)
            staged, stream = self._store.stage(self._attempt.name)
            with answering(directory):
                writer = new_writer(self._settings, stream, table)
        except BaseException as error:
            if is_of_table(error):
                self._refused[id(table)] = table, reason_of(error)
            if stream is not None:
                _close_quietly(stream)
            raise
        return _Open(staged, writer, table, directory, partition, _Span(offset, offset))

    def _flush(self, key: tuple[KafkaPartition, int, str]) -> None:
        """Write what waits, and end the file where it is large enough."""
        file = self._open[key]
        self._write(file)
        if file.writer.size() >= self._settings.file_mebibytes << 20:
            self._end(key)

    def _end(self, key: tuple[KafkaPartition, int, str]) -> None:
        file = self._open.pop(key)
        self._write(file)
        with answering(file.directory):
            file.writer.close()
        if file.records:
            name = FileName(source_of(file.partition), file.span.first, file.span.last)
            self._staged[f"{file.directory}/{name.with_suffix(suffix_of(self._settings))}"] = file.staged
            self._rows += file.records

    def _write(self, file: _Open) -> None:
        waiting, file.waiting = file.waiting, []
        self._buffered -= len(waiting)
        self._buffered_bytes -= file.waiting_bytes
        file.waiting_bytes = 0
        file.records += self._written(file, waiting) if waiting else 0

    def _written(self, file: _Open, records: Sequence[OutgoingRecord]) -> int:
        """How many records a file's format takes; those that there is no way to say are set aside."""

        def write(some: Sequence[OutgoingRecord]) -> None:
            with answering(file.directory):
                file.writer.write(some)

        def refuse(record: OutgoingRecord, error: BaseException) -> None:
            self.set_aside(
                DeadLetter(record.record_id, reason_of(error), record.message, transaction=record.transaction)
            )

        return len(in_halves(records, write, refuse))

    def commit(self) -> Summary:
        for key in list(self._open):
            self._end(key)
        self._letters.put(self.aside)
        if self._driver is not None:
            self._driver.extend(self._attempt, {partition: span.last + 1 for partition, span in self._spans.items()})
        for path in sorted(set(self._left()) - self._staged.keys()):
            self._store.remove(self._attempt.name, path)
        for path in sorted(self._staged):
            self._store.place(self._attempt.name, self._staged[path], path)
        if self._driver is not None:
            self._driver.commit()
        return Summary(rows=self._rows, dead_letters=len(self.aside))

    def _left(self) -> Iterator[str]:
        """The files of earlier attempts, and of replays, whose changes this batch has."""
        for (directory, partition), again in self._again.items():
            span = self._spans[partition]
            for path, name in self._files(directory, partition):
                is_again = name.first in again.written if name.last is None else span.first <= name.first <= span.last
                if is_again and path not in again.stay:
                    yield path

    def abandon(self) -> None:
        """What is staged goes with the attempt's directory."""
        for file in self._open.values():
            _close_quietly(file.writer)


@dataclass(frozen=True, slots=True)
class FilesWriter:
    """Writes a share's changes under the names that any other attempt gives them."""

    store: FileStore = field(repr=False)
    settings: FilesSinkSettings = field(repr=False)
    attempt: Attempt
    letters: Letters

    def write(self, share: KafkaPartition, pieces: Iterable[Piece]) -> CommitMessage:
        """As DataWriter says."""
        if self.store.local and not self.store.holds(self.attempt.name):
            raise HereOnlyError("the sink's path is a directory of each machine, which executors do not share")
        batch = FilesBatch(self.store, self.settings, self.attempt, self.letters)
        return CommitMessage(share, emit(batch, pieces, RecordForms()))


def _close_quietly(writer: Any) -> None:
    try:
        writer.close()
    except (OSError, ValueError) as error:
        log.debug("an abandoned file could not be closed: %s", error)
