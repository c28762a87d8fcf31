"""Readers of a files sink: only what is committed, in the order of the commits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import date
from itertools import islice
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace_schemas.change import Change
from tailrace_schemas.change_json import ChangeForms
from tailrace_spark.batch.delivery import RecordId
from tailrace_spark.sinks.files.commits import Commits
from tailrace_spark.sinks.files.dead_letters import CommittedDeadLetters
from tailrace_spark.sinks.files.formats import json_records, parquet_records
from tailrace_spark.sinks.files.manifest import Commit, CommittedFile
from tailrace_spark.sinks.files.settings import FilesSinkSettings
from tailrace_spark.sinks.files.store import FileStore

_OPEN_FILES: Final = 64


class CommittedFiles:
    """What is below the root of a files sink. May be read while the stream writes: each call sees what is there then.

    Raises ServiceError where the file system does not answer, SettingsError where a newer version wrote.
    """

    def __init__(self, store: FileStore) -> None:
        self._store = store
        self._commits = Commits(store)

    @classmethod
    def at(cls, path: str, **settings: Any) -> Self:
        """Those below a path, local or s3://; `settings` as in [sink.NAME]: region, endpoint, access_key, ..."""
        return cls(FileStore.of(FilesSinkSettings(path=path, **settings)))

    def commits(self, after: int = -1) -> Iterator[Commit]:
        """The commits behind a number, in order; a follower keeps the last number that it has seen."""
        yield from self._commits.after(after)

    def files(
        self, table: str | None = None, since: date | None = None, until: date | None = None, after: int = -1
    ) -> Iterator[CommittedFile]:
        """The files of all tables or of one, "keyspace.table", of the days from `since` to `until`, both included.

        Each once and whole: one that a compaction made may also have records of commits at or before `after`.
        """
        paths: set[str] = set()
        for commit in self.commits(after):
            for file in commit.files:
                if (
                    table in (None, file.table)
                    and (since is None or file.day >= since.isoformat())
                    and (until is None or file.day <= until.isoformat())
                    and file.path not in paths
                ):
                    paths.add(file.path)
                    yield replace(file, begin=0, records=file.rows or file.records)

    def records(self, table: str | None = None, after: int = -1) -> Iterator[dict[str, Any]]:
        """The changes as JSON objects (docs/change-json.md), commit by commit.

        Within a commit by topic, partition and offset: all of it is in memory at once.
        """
        with closing(_Rows(self._store, self._commits)) as rows:
            for commit in self.commits(after):
                records = [record for file in commit.files if table in (None, file.table) for record in rows.of(file)]
                yield from sorted(records, key=lambda record: (record["topic"], record["partition"], record["offset"]))

    def changes(self, table: str | None = None, after: int = -1) -> Iterator[tuple[RecordId, Change]]:
        """The same as changes, each with its place: what row state merges."""
        forms = ChangeForms()
        with closing(_Rows(self._store, self._commits)) as rows:
            for commit in self.commits(after):
                changes: list[tuple[RecordId, Change]] = []
                for file in commit.files:
                    if table in (None, file.table):
                        form = forms.of(self._commits.definition(file.definition))
                        changes += [(RecordId.from_json(record), form.read(record)) for record in rows.of(file)]
                yield from sorted(changes, key=lambda change: change[0].key)

    def dead_letters(self, after: int = -1) -> Iterator[dict[str, Any]]:
        """What was set aside and waits: place, `reason`, and `message`, the record's bytes as hexadecimal digits."""
        letters = CommittedDeadLetters(self._store, self._commits)
        files = letters.files()
        for path in dict.fromkeys(file.path for file in files.values() if file.commit > after):
            for value in letters.values(path):
                file = files.get(RecordId.from_json(value).key)
                if file is not None and file.path == path:
                    yield value

    def arrow(self, table: str, since: date | None = None, until: date | None = None) -> Any:
        """The Parquet files of one table as a pyarrow Table, with the columns of all definitions; None without any.

        Columns that a file's definition did not have are null.
        """
        tables: list[Any] = []
        for file in self.files(table, since, until):
            with self._store.input(file.path) as opened:
                tables.append(pq.read_table(opened).replace_schema_metadata(None))
        if not tables:
            return None
        schema = pa.unify_schemas([file_table.schema for file_table in tables], promote_options="permissive")
        return pa.concat_tables([_widened(file_table, schema) for file_table in tables])


class _Rows:
    """The records of files, a part at a time; a file whose parts follow each other is read once."""

    def __init__(self, store: FileStore, commits: Commits) -> None:
        self._store = store
        self._commits = commits
        self._open: dict[str, tuple[int, Iterator[dict[str, Any]]]] = {}

    def of(self, file: CommittedFile) -> Iterator[dict[str, Any]]:
        """Those of a part; to be read to its end before the next is asked for."""
        next_row, records = self._open.pop(file.path, (0, None))
        if records is None or next_row != file.begin:
            records = islice(self._records(file), file.begin, None)
        yield from islice(records, file.records)
        if file.begin + file.records < file.rows:
            if len(self._open) >= _OPEN_FILES:
                self._open.pop(next(iter(self._open)))
            self._open[file.path] = file.begin + file.records, records

    def close(self) -> None:
        """Close the files."""
        self._open.clear()

    def _records(self, file: CommittedFile) -> Iterator[dict[str, Any]]:
        with self._store.input(file.path) as opened:
            if file.path.endswith(".parquet"):
                yield from parquet_records(opened, self._commits.definition(file.definition))
            else:
                yield from json_records(opened, file.path)


def _widened(table: Any, schema: Any) -> Any:
    """The columns of a wider schema: those that the part lacks are null."""
    for field in schema:
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table.select(schema.names).cast(schema)
