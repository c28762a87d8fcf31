"""Dead letters of a files sink: those that wait, told by the commits, and written again by commits of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.delivery import DeadLetter, RecordId, RecordKey, Summary
from tailrace_spark.sinks.changelog.replayable import page
from tailrace_spark.sinks.changelog.sink import Batch
from tailrace_spark.sinks.files.commits import Commits, TakenError
from tailrace_spark.sinks.files.formats import json_records
from tailrace_spark.sinks.files.manifest import Ends
from tailrace_spark.sinks.files.outlet import FilesBatch, FilesOutlet
from tailrace_spark.sinks.files.settings import FilesSinkSettings
from tailrace_spark.sinks.files.store import FileStore

_TRIES: Final = 10


@dataclass(frozen=True, slots=True)
class Waiting:
    """Where a letter stands: the commit that set it aside, and the file."""

    commit: int
    path: str


class CommittedLetters:
    """The letters that wait; reads on from the commit that it has seen. Raises ServiceError."""

    def __init__(self, store: FileStore, commits: Commits) -> None:
        self._store = store
        self._commits = commits
        self._seen = -1
        self._waiting: dict[RecordKey, Waiting] = {}

    def waiting(self) -> dict[RecordKey, Waiting]:
        """By place. A later letter of a place is in place of the earlier; what was replayed waits no more."""
        for commit in self._commits.after(self._seen):
            for place in commit.replayed:
                self._waiting.pop(place, None)
            if commit.dead_letters is not None:
                for value in self.values(commit.dead_letters):
                    self._waiting[_place(value)] = Waiting(commit.number, commit.dead_letters)
            self._seen = commit.number
        return self._waiting

    def values(self, path: str) -> list[dict[str, Any]]:
        """What a file of letters has."""
        with self._store.input(path) as opened:
            return list(json_records(opened, path))

    def letters(self, after: RecordId | None, most: int) -> Sequence[DeadLetter]:
        """As DeadLetterSink has it."""
        waiting = self.waiting()
        places = page(waiting, after, most)
        found: dict[RecordKey, dict[str, Any]] = {}
        for path in sorted({waiting[place].path for place in places}):
            for value in self.values(path):
                if (known := waiting.get(_place(value))) is not None and known.path == path:
                    found[_place(value)] = value
        return [_letter(found[place]) for place in places]


class ReplayingFilesOutlet(FilesOutlet):
    """As FilesOutlet; its letters can be written again, on a local disk while a stream writes.

    S3 lets nobody see that a name was taken a moment ago, so there is one writer: who begins last.
    """

    def __init__(self, store: FileStore, settings: FilesSinkSettings) -> None:
        super().__init__(store, settings)
        self._files = store
        self._section = settings
        self._known_letters = CommittedLetters(store, Commits(store))

    def letters(self, after: RecordId | None, most: int) -> Sequence[DeadLetter]:
        """As DeadLetterSink has it."""
        return self._known_letters.letters(after, most)

    def begin_again(self, letters: Sequence[DeadLetter]) -> Batch:
        """As LetterOutlet has it."""
        if not self._files.renames:
            self.claim()
        self.forget()
        name, ends = self.attempt()
        waiting = self.waiting()
        reasons = {letter.record_id.key: letter.reason for letter in letters if letter.record_id.key in waiting}
        return _Again(self, self._files, self._section, name, ends, reasons)

    def waiting(self) -> dict[RecordKey, Waiting]:
        """The letters that wait now."""
        return self._known_letters.waiting()


class _Again(FilesBatch):
    """An attempt at letters, by the reasons that they have now: it moves no partition."""

    def __init__(
        self, outlet: ReplayingFilesOutlet, store: FileStore, settings: FilesSinkSettings, name: str, ends: Ends,
        reasons: dict[RecordKey, str],
    ) -> None:  # fmt: skip
        super().__init__(outlet, store, settings, name, ends)
        self._replaying = outlet
        self._reasons = reasons
        self._kept: dict[RecordKey, DeadLetter] = {}

    def take(self, place: RecordId) -> bool:
        return place.key in self._reasons

    def set_aside(self, letter: DeadLetter) -> None:
        if self.take(letter.record_id):
            self._kept[letter.record_id.key] = letter

    def commit(self) -> Summary:
        files = self.ended()
        done = tuple(sorted(self._reasons.keys() - self._kept.keys()))
        changed = [letter for place, letter in self._kept.items() if letter.reason != self._reasons[place]]
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
                if not self._reasons.keys() <= self._replaying.waiting().keys():
                    raise ServiceError("another replay of these dead letters came first: run this again") from None
            else:
                return
        raise ServiceError("a stream commits again and again meanwhile: run this again")


def _place(value: dict[str, Any]) -> RecordKey:
    return value["topic"], value["partition"], value["offset"]


def _letter(value: dict[str, Any]) -> DeadLetter:
    schema, message = bytes.fromhex(value["schema"] or ""), bytes.fromhex(value["message"] or "")
    return DeadLetter(RecordId(*_place(value), schema), value["reason"], message)
