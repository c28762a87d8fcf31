"""Dead letters of a files sink, written again beside a stream that may write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.delivery import DeadLetter, Summary
from tailrace_spark.sinks.changelog.routes import day_of
from tailrace_spark.sinks.changelog.sink import Batch, OutgoingRecord
from tailrace_spark.sinks.files.formats import FileName, directory_of, new_writer, source_of, suffix_of
from tailrace_spark.sinks.files.settings import FilesSinkSettings
from tailrace_spark.sinks.files.store import FileStore, TakenError, answering
from tailrace_spark.sinks.letters import Letters


class AgainBatch(Batch):
    """Changes of letters: each has a file of its own, of the same name however often it is tried."""

    def __init__(self, store: FileStore, settings: FilesSinkSettings, letters: Letters) -> None:
        self._store = store
        self._settings = settings
        self._letters = letters
        self._name = f"replay-{uuid4().hex}"
        self._store.begin(self._name)
        self._staged: dict[str, str] = {}
        self._set_aside: list[DeadLetter] = []

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

    def set_aside(self, letter: DeadLetter) -> None:
        self._set_aside.append(letter)

    def commit(self) -> Summary:
        self._letters.put(self._set_aside)
        with _not_overtaken():
            for path, staged in sorted(self._staged.items()):
                self._store.place(self._name, staged, path)
            self._store.take_away(self._name)
        return Summary(rows=len(self._staged), dead_letters=len(self._set_aside))

    def abandon(self) -> None:
        """What is staged goes with the directory of the attempt."""


@contextmanager
def _not_overtaken() -> Iterator[None]:
    """A stream that begins, or has to write a batch again, ends a replay that is under way."""
    try:
        yield
    except TakenError:
        raise ServiceError("a stream has begun to write there meanwhile: run this again") from None
