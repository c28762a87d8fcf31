"""Dead letters of a files sink: those that wait, and another try for them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from uuid import uuid4

from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.dead_letters import page
from tailrace_spark.batch.delivery import DeadLetter, RecordId, RecordKey, Summary
from tailrace_spark.sinks.changelog.days import day_of
from tailrace_spark.sinks.changelog.sink import Batch, OutgoingRecord
from tailrace_spark.sinks.files.formats import new_writer, suffix_of
from tailrace_spark.sinks.files.names import LETTERS, FileName, directory_of, source_of
from tailrace_spark.sinks.files.outlet import FilesOutlet, stage_letters
from tailrace_spark.sinks.files.settings import FilesSinkSettings
from tailrace_spark.sinks.files.store import FileStore, GoneError, TakenError, answering


class ReplayableFilesOutlet(FilesOutlet):
    """As FilesOutlet; its letters can be written again while a stream writes."""

    def __init__(self, store: FileStore, settings: FilesSinkSettings) -> None:
        super().__init__(store, settings)
        self._keys: dict[tuple[str, int, int], Sequence[RecordKey]] = {}

    def dead_letters(self, after: RecordId | None, limit: int) -> Sequence[DeadLetter]:
        paths = self.letter_paths()
        letters: dict[RecordKey, DeadLetter] = {}
        keys = page(paths, after, limit)
        for path in sorted({paths[key] for key in keys}):
            letters.update({letter.record_id.key: letter for letter in letters_in(self.store, path)})
        return [letters[key] for key in keys if key in letters]

    def letter_paths(self) -> Mapping[RecordKey, str]:
        """The file that has the letter of each record. Only files that have changed are read again."""
        stamps = [(path, *stamp) for path, stamp in self.store.below(LETTERS).items()]
        self._keys = {
            stamp: self._keys.get(stamp) or [letter.record_id.key for letter in letters_in(self.store, stamp[0])]
            for stamp in stamps
        }
        return {key: stamp[0] for stamp, keys in self._keys.items() for key in keys}

    def begin_replay(self, letters: Sequence[DeadLetter]) -> Batch:
        return _Replay(self, letters)


def letters_in(store: FileStore, path: str) -> list[DeadLetter]:
    """Those of a file; none where it is not there any more. Raises SettingsError where some are of a later version."""
    with suppress(GoneError):
        return [DeadLetter.from_json(json.loads(line), path) for line in store.read(path).splitlines()]
    return []


class _Replay(Batch):
    """An attempt at letters: each has a file of its own, of the same name however often it is tried."""

    def __init__(self, outlet: ReplayableFilesOutlet, letters: Sequence[DeadLetter]) -> None:
        self._outlet = outlet
        self._store = outlet.store
        self._name = f"replay-{uuid4().hex}"
        self._store.begin(self._name)
        self._reasons = {letter.record_id.key: letter.reason for letter in letters}
        self._staged: dict[RecordKey, tuple[str, str]] = {}
        self._kept: dict[RecordKey, DeadLetter] = {}

    def put(self, record: OutgoingRecord) -> None:
        record_id, table, settings = record.record_id, record.change.table, self._outlet.settings
        if record_id.key not in self._reasons:
            return
        with _not_overtaken():
            staged, stream = self._store.stage(self._name)
        with answering(staged):
            writer = new_writer(settings, stream, table)
            writer.write([record])
            writer.close()
        name = FileName(source_of(record_id.key[:2]), record_id.offset, None).with_suffix(suffix_of(settings))
        self._staged[record_id.key] = staged, f"{directory_of(table, day_of(record.written))}/{name}"

    def set_aside(self, letter: DeadLetter) -> None:
        if letter.record_id.key in self._reasons:
            self._kept[letter.record_id.key] = letter

    def commit(self) -> Summary:
        with _not_overtaken():
            self._place()
        return Summary(rows=len(self._staged), dead_letters=len(self._kept))

    def _place(self) -> None:
        """Place the changes, then take out the letters; one that has gone meanwhile is in a file already."""
        paths = self._outlet.letter_paths()
        for key, (staged, path) in sorted(self._staged.items()):
            if key in paths:
                self._store.place(self._name, staged, path)
        done = self._reasons.keys() - self._kept.keys()
        changed = {key: letter for key, letter in self._kept.items() if letter.reason != self._reasons[key]}
        for path in sorted({paths[key] for key in (*done, *changed) if key in paths}):
            letters = letters_in(self._store, path)
            waiting = [
                changed.get(letter.record_id.key, letter) for letter in letters if letter.record_id.key not in done
            ]
            if waiting:
                self._store.place(self._name, stage_letters(self._store, self._name, waiting), path)
            elif letters:
                self._store.remove(self._name, path)
        self._store.take_away(self._name)

    def abandon(self) -> None:
        """What is staged goes with the directory of the attempt."""


@contextmanager
def _not_overtaken() -> Iterator[None]:
    """A stream that begins, or has to write a batch again, ends a replay that is under way."""
    try:
        yield
    except TakenError:
        raise ServiceError("a stream has begun to write there meanwhile: run this again") from None
