"""Dead letters of a files sink: those that wait, told by the commits, and written again by commits of their own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.dead_letters import page
from tailrace_spark.batch.delivery import DeadLetter, RecordId, RecordKey, Summary, require_letter_format
from tailrace_spark.sinks.changelog.sink import Batch
from tailrace_spark.sinks.files.commits import Commits, TakenError
from tailrace_spark.sinks.files.formats import json_records
from tailrace_spark.sinks.files.manifest import Ends
from tailrace_spark.sinks.files.outlet import FilesBatch, FilesOutlet
from tailrace_spark.sinks.files.settings import FilesSinkSettings
from tailrace_spark.sinks.files.store import FileStore

_TRIES: Final = 10


@dataclass(frozen=True, slots=True)
class LetterFile:
    """Where a dead letter is: the commit that set it aside, and its file."""

    commit: int
    path: str


class CommittedDeadLetters:
    """A DeadLetterReader over the commits; reads on from the commit that it has seen. Raises ServiceError."""

    def __init__(self, store: FileStore, commits: Commits) -> None:
        self._store = store
        self._commits = commits
        self._seen = -1
        self._files_by_key: dict[RecordKey, LetterFile] = {}

    def files(self) -> Mapping[RecordKey, LetterFile]:
        """Those of all dead letters, by record: of several the newest counts, and none that was replayed."""
        for commit in self._commits.after(self._seen):
            for key in commit.replayed:
                self._files_by_key.pop(key, None)
            if commit.dead_letters is not None:
                for value in self.values(commit.dead_letters):
                    self._files_by_key[RecordId.from_json(value).key] = LetterFile(commit.number, commit.dead_letters)
            self._seen = commit.number
        return self._files_by_key

    def values(self, path: str) -> Sequence[dict[str, Any]]:
        """The JSON objects of a file. Raises SettingsError where some are of a later version."""
        with self._store.input(path) as opened:
            values = list(json_records(opened, path))
        for value in values:
            require_letter_format(value, path)
        return values

    def list(self, after: RecordId | None, limit: int) -> Sequence[DeadLetter]:
        files = self.files()
        keys = page(files, after, limit)
        letters: dict[RecordKey, DeadLetter] = {}
        for path in sorted({files[key].path for key in keys}):
            for letter in map(DeadLetter.from_json, self.values(path)):
                if (file := files.get(letter.record_id.key)) is not None and file.path == path:
                    letters[letter.record_id.key] = letter
        return [letters[key] for key in keys]


class ReplayableFilesOutlet(FilesOutlet):
    """As FilesOutlet; its letters can be written again, on a local disk while a stream writes.

    S3 lets nobody see that a name was taken a moment ago, so there is one writer: who begins last.
    """

    def __init__(self, store: FileStore, settings: FilesSinkSettings) -> None:
        super().__init__(store, settings)
        self._dead_letters = CommittedDeadLetters(store, Commits(store))

    def dead_letters(self, after: RecordId | None, limit: int) -> Sequence[DeadLetter]:
        return self._dead_letters.list(after, limit)

    def begin_replay(self, letters: Sequence[DeadLetter]) -> Batch:
        if not self.store.renames:
            self.claim()
        self.forget()
        name, ends = self.attempt()
        remaining = self.left()
        reasons = {letter.record_id.key: letter.reason for letter in letters if letter.record_id.key in remaining}
        return _Replay(self, self.store, self.settings, name, ends, reasons)

    def left(self) -> Collection[RecordKey]:
        """The records of the dead letters that no replay has taken in, as of now."""
        return self._dead_letters.files().keys()


class _Replay(FilesBatch):
    """An attempt at letters, by the reasons that they have now: it moves no partition."""

    def __init__(
        self, outlet: ReplayableFilesOutlet, store: FileStore, settings: FilesSinkSettings, name: str, ends: Ends,
        reasons: dict[RecordKey, str],
    ) -> None:  # fmt: skip
        super().__init__(outlet, store, settings, name, ends)
        self._replaying = outlet
        self._reasons = reasons
        self._kept: dict[RecordKey, DeadLetter] = {}

    def take(self, record_id: RecordId) -> bool:
        return record_id.key in self._reasons

    def set_aside(self, letter: DeadLetter) -> None:
        if self.take(letter.record_id):
            self._kept[letter.record_id.key] = letter

    def commit(self) -> Summary:
        files = self.ended()
        done = tuple(sorted(self._reasons.keys() - self._kept.keys()))
        changed = [letter for key, letter in self._kept.items() if letter.reason != self._reasons[key]]
        if done or changed:
            self._commit(files, self.write_letters(changed), done)
        return Summary(rows=sum(file.records for file in files), dead_letters=len(self._kept))

    def _commit(self, files: Any, letters: str | None, done: tuple[RecordKey, ...]) -> None:
        """Behind whatever a stream commits meanwhile; but not where another replay has some of them."""
        for _ in range(_TRIES):
            try:
                self._replaying.commit(files, {}, letters, done)
            except TakenError:
                self._replaying.forget()
                if not self._reasons.keys() <= set(self._replaying.left()):
                    raise ServiceError("another replay of these dead letters came first: run this again") from None
            else:
                return
        raise ServiceError("a stream commits again and again meanwhile: run this again")
