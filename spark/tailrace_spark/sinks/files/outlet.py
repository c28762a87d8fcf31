"""Files of changes by table and day: a micro-batch is there as a whole, by its manifest, or not at all."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import uuid4

from tailrace_common.sections.template import directory_name
from tailrace_schemas.change import record_times
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import DeadLetter, RecordId, RecordKey, Summary
from tailrace_spark.batch.sink_progress import SinkProgress, progress_from_json, progress_to_json
from tailrace_spark.sinks.changelog.days import day_of
from tailrace_spark.sinks.changelog.sink import Batch, OutgoingRecord
from tailrace_spark.sinks.files.commits import Commits, is_new
from tailrace_spark.sinks.files.formats import FormatWriter, JsonLines, Parquet
from tailrace_spark.sinks.files.manifest import Commit, CommittedFile, Ends
from tailrace_spark.sinks.files.settings import FilesSinkSettings
from tailrace_spark.sinks.files.store import FileStore, answering, hidden
from tailrace_spark.sinks.table_faults import TableRefusedError, is_of_table, reason_of

log = logging.getLogger("tailrace_spark")

_FORMATS: Final[Mapping[str, Callable[..., FormatWriter]]] = {"parquet": Parquet, "jsonl": JsonLines}
# Of all files together, what memory holds; of one file, what a row group is made of at most.
_BUFFERED_RECORDS: Final = 20_000


@dataclass(frozen=True, slots=True)
class FileLimits:
    """A file gets so many records at a time, and so many files are open: a backfill may touch years of days at once.
    One that is ended early is just a smaller file."""

    group_records: int = 5_000
    open_files: int = 64


FILE_LIMITS: Final = FileLimits()

_STREAMS: Final = "_tailrace/streams/{}.json"

_Key = tuple[int, str]
"""A definition, by identity, and a day."""


class FilesOutlet:
    """Commits each batch by a manifest; what is committed of a partition is left out when it comes again."""

    def __init__(self, store: FileStore, settings: FilesSinkSettings, limits: FileLimits = FILE_LIMITS) -> None:
        self.limits = limits
        self.store = store
        self.settings = settings
        self._commits = Commits(store)
        self._writer = uuid4().hex[:12]
        self._claimed = False
        self._attempts = 0
        self._known: tuple[int, Ends] | None = None

    def reach(self) -> None:
        """See that the root may be written, and list it."""
        self.store.reach()

    def progress(self, stream: str) -> SinkProgress | None:
        path = _STREAMS.format(stream)
        return progress_from_json(self.store.read(path).decode()) if self.store.exists(path) else None

    def keep_progress(self, progress: SinkProgress) -> None:
        self.store.write(_STREAMS.format(progress.stream), progress_to_json(progress).encode())

    def begin(self) -> Batch:
        self.claim()
        name, ends = self.attempt()
        return FilesBatch(self, self.store, self.settings, name, ends)

    def claim(self) -> None:
        """Be the one stream that writes here."""
        if not self._claimed:
            self._commits.claim(self._writer)
            self._claimed = True

    def attempt(self) -> tuple[str, Ends]:
        """What the names of an attempt's files begin with, and no others do; and what is committed."""
        if self._known is None:
            self._known = self._commits.last()
        last_commit, ends = self._known
        self._attempts += 1
        return f"{last_commit + 1:020}-{self._writer}-{self._attempts}", ends

    def commit(
        self,
        files: tuple[CommittedFile, ...],
        moved: Ends,
        dead_letters: str | None,
        replayed: tuple[RecordKey, ...] = (),
    ) -> None:
        """Write the manifest of a batch: its files, the ends that it moved, where its dead letters are, and which
        earlier ones it has."""
        last_commit, ends = self._known or self._commits.last()
        if self._claimed:
            self._commits.require(self._writer)
        ends = {**ends, **moved}
        commit = Commit(number=last_commit + 1, files=files, ends=moved, dead_letters=dead_letters, replayed=replayed)
        self._commits.write(commit, ends, self._writer)
        self._known = last_commit + 1, ends

    def forget(self) -> None:
        """Whether a batch's manifest was written is not known: the store is asked."""
        self._known = None

    def name_of(self, table: Table) -> str:
        """The name of a definition below the root."""
        return self._commits.name_of(table)

    def close(self) -> None:
        """Nothing is kept open between batches."""


@dataclass(slots=True)
class _Open:
    """A file that is being written: its place among the batch's, and the records that it gets next."""

    path: str
    writer: FormatWriter
    file: CommittedFile
    waiting: list[OutgoingRecord] = field(default_factory=list)


class FilesBatch(Batch):
    """One attempt at a batch. `name` begins the names of its files, and of no others.

    An attempt that failed may have streams left, which write their last bytes when memory is tidied up.
    """

    def __init__(
        self, outlet: FilesOutlet, store: FileStore, settings: FilesSinkSettings, name: str, ends: Ends
    ) -> None:
        self._outlet = outlet
        self._limits = outlet.limits
        self._store = store
        self._settings = settings
        self._name = name
        self._ends = ends
        self._moved: Ends = {}
        self._open: dict[_Key, _Open] = {}
        self._done: list[CommittedFile] = []
        self._letters: list[DeadLetter] = []
        self._files = 0
        self._buffered = 0
        self._left_out = 0
        self._refused: dict[int, tuple[Table, str]] = {}

    def put(self, record: OutgoingRecord) -> None:
        if not self.take(record.first_id):
            return
        change, day = record.change, day_of(record_times(record.change)[0])
        if (refused := self._refused.get(id(change.table))) is not None:
            raise TableRefusedError(refused[1])
        file = self._open.pop((id(change.table), day), None) or self._new(change.table, day)
        self._open[(id(change.table), day)] = file  # the last one used stands last
        file.waiting.append(record)
        self._buffered += 1
        if len(file.waiting) >= self._limits.group_records:
            self._flush(file)
        if self._buffered >= _BUFFERED_RECORDS:
            for open_file in list(self._open.values()):
                self._flush(open_file)

    def set_aside(self, letter: DeadLetter) -> None:
        if self.take(letter.first_id):
            self._letters.append(letter)

    def take(self, record_id: RecordId) -> bool:
        """Whether it is not committed yet; then it moves the end of its partition."""
        if not is_new(record_id, self._ends):
            self._left_out += 1
            return False
        partition = record_id.topic, record_id.partition
        self._moved[partition] = max(self._moved.get(partition, 0), record_id.offset + 1)
        return True

    def _new(self, table: Table, day: str) -> _Open:
        if len(self._open) >= self._limits.open_files:
            oldest = next(iter(self._open))
            self._end(self._open.pop(oldest))
        suffix = {"parquet": ".parquet", "jsonl": ".jsonl.gz" if self._settings.compress else ".jsonl"}
        directory = f"{directory_name(table.keyspace, table.name)}/day={day}"
        path = f"{directory}/{self._name}-{self._files}{suffix[self._settings.format]}"
        self._files += 1
        stream = self._store.open(hidden(path) if self._store.renames else path)
        try:
            with answering(path):
                writer = _FORMATS[self._settings.format](stream, table, compress=self._settings.compress)
        except BaseException as error:
            if is_of_table(error):
                self._refused[id(table)] = table, reason_of(error)
            _close_quietly(stream)
            raise
        name = self._outlet.name_of(table)
        file = CommittedFile(path=path, table=str(table), day=day, definition=name, records=0, bytes=0)
        return _Open(path, writer, file)

    def _flush(self, file: _Open) -> None:
        """Write what waits, and end the file where it is large enough."""
        self._write(file)
        if file.writer.size() >= self._settings.file_mebibytes << 20:
            self._open = {key: open_file for key, open_file in self._open.items() if open_file is not file}
            self._end(file)

    def _end(self, file: _Open) -> None:
        self._write(file)
        with answering(file.path):
            file.writer.close()
        path = hidden(file.path) if self._store.renames else file.path
        self._store.settle(path)
        self._done.append(replace(file.file, bytes=self._store.size(path)))

    def _write(self, file: _Open) -> None:
        """Write what waits for a file."""
        waiting, file.waiting = file.waiting, []
        self._buffered -= len(waiting)
        written = self._written(file, waiting) if waiting else 0
        file.file = replace(file.file, records=file.file.records + written)

    def _written(self, file: _Open, records: Sequence[OutgoingRecord]) -> int:
        """How many records a file's format takes; where it has no way to say one, halves, until that stands alone."""
        try:
            with answering(file.path):
                file.writer.write(records)
        except BaseException as error:
            if not is_of_table(error):
                raise
            if len(records) == 1:
                [record] = records
                letter = DeadLetter(record.record_id, reason_of(error), record.message, transaction=record.transaction)
                self.set_aside(letter)
                return 0
            middle = len(records) // 2
            return self._written(file, records[:middle]) + self._written(file, records[middle:])
        return len(records)

    def commit(self) -> Summary:
        files = self.ended()
        if self._left_out:
            log.info("skipped %d records that an earlier commit has already written", self._left_out)
        if not self._moved:
            return Summary()
        self._outlet.commit(files, self._moved, self.write_letters(self._letters))
        return Summary(rows=sum(file.records for file in files), dead_letters=len(self._letters))

    def ended(self) -> tuple[CommittedFile, ...]:
        """All files of the batch, whole."""
        for key in list(self._open):
            self._end(self._open.pop(key))
        return tuple(sorted(self._done, key=lambda file: file.path))

    def write_letters(self, letters: Sequence[DeadLetter]) -> str | None:
        """Write the batch's file of dead letters; its path, None where there are none."""
        if not letters:
            return None
        path = f"_tailrace/dead-letters/{self._name}.jsonl"
        lines = (json.dumps(letter.to_json(), ensure_ascii=False) for letter in letters)
        self._store.write(path, "".join(f"{line}\n" for line in lines).encode())
        return path

    def abandon(self) -> None:
        """Files without a manifest stay; readers of what is committed do not see them."""
        self._outlet.forget()
        for file in self._open.values():
            _close_quietly(file.writer)


def _close_quietly(writer: Any) -> None:
    try:
        writer.close()
    except (OSError, ValueError) as error:
        log.debug("an abandoned file could not be closed: %s", error)
