"""Delta tables below a path, through delta-rs: what a sink does with them. The one module that knows deltalake."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    SchemaMismatchError,
    TableNotFoundError,
)
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import fs

from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.sinks.arrow.types import conform_table
from tailrace_spark.sinks.delta.settings import DeltaSinkSettings, storage_options
from tailrace_spark.sinks.lake.parquet_files import ParquetFile, write_files
from tailrace_spark.sinks.lake.staging import directories, local_files, require_files, require_writable
from tailrace_spark.sinks.lake.store import (
    Condition,
    not_among,
    plain_type,
    require_readable,
    rows_of_keys,
    with_format,
)
from tailrace_spark.sinks.protocol import HereOnlyError
from tailrace_spark.sinks.table_faults import TableRefusedError, is_of_a_name

_S3: Final = "s3://"
PATIENCE: Final[Mapping[str, str]] = {"max_retries": "5", "retry_timeout": "30s", "connect_timeout": "10s"}
"""Of S3's client: some tries within half a minute. Then the batch is delivered again, and says what it waits for."""
_LOOKED_AT: Final = 200_000  # rows whose keys are looked for at once: to hash these takes longer than most files' rows
# What delta-rs says of a table, its columns or its constraints, in errors of the type that S3's have too.
_OF_THE_TABLE: Final = ("Schema error", "Invalid data found", "Invariant violation", "Cast error")
_ROWS: Final = "Preview of invalid data"
_CHECKED: Final = ("delta.constraints.", "delta.columnMapping.")
# The features of a table's protocol that ask nothing of whoever writes files of new rows; a constraint has a setting.
_UNCHECKED: Final = frozenset(
    ("appendOnly", "checkConstraints", "deletionVectors", "domainMetadata", "inCommitTimestamp", "invariants",
     "timestampNtz", "v2Checkpoint")
)  # fmt: skip
_GONE: Final = "gone"
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


class DeltaStore:
    """The Delta tables below the path of a section. Raises ServiceError where the store does not answer."""

    def __init__(self, settings: DeltaSinkSettings, patience: Mapping[str, str] = PATIENCE) -> None:
        """`patience`: options of S3's client. Raises SettingsError for a path of another kind than a directory or s3://."""
        self._remote = settings.path.startswith(_S3)
        if "://" in settings.path and not self._remote:
            raise SettingsError(f"a delta sink's path is a directory or begins with {_S3}, unlike {settings.path}")
        self._root = settings.path.rstrip("/") if self._remote else os.path.abspath(settings.path)
        self._options = storage_options(settings, patience) if self._remote else {}
        self._file_bytes = settings.file_mebibytes << 20

    def reach(self) -> None:
        """See that the directory may be written, or the bucket answers. Raises ServiceError."""
        if self._remote:
            with _answering(self._root):
                DeltaTable.is_deltatable(f"{self._root}/tailrace", self._options)
            return
        require_writable(self._root)

    def open(self, name: str) -> StoredTable | None:
        """The table of a name below the path, as it is now; None where there is none.

        Raises SettingsError for one of another version.
        """
        with _answering(uri := self.uri(name)):
            try:
                delta = DeltaTable(uri, storage_options=self._options or None)
            except TableNotFoundError:
                return None
        # What deltalake reads files by itself takes turns with all that is computed in Python.
        table = StoredTable(delta, None if self._remote else fs.SubTreeFileSystem(uri, fs.LocalFileSystem()))
        require_readable(uri, table)
        return table

    def describe(self, name: str) -> dict[str, object]:
        """What there is of a table: its version, and its files and their bytes as of that."""
        table = self._opened(name)
        with _answering(self.uri(name)):
            files = pa.table(table.delta.get_add_actions(flatten=True))
        sizes = files["size_bytes"]
        return {
            "table": name,
            "version": table.delta.version(),
            "files": len(sizes),
            "bytes": pc.sum(sizes).as_py() or 0,
        }

    def compact(self, name: str) -> dict[str, object]:
        """Put a table's small files together, up to the size of the section; how many went, and how many came."""
        with _answering(self.uri(name)):
            done = self._opened(name).delta.optimize.compact(target_size=self._file_bytes)
        return {"removed": done["numFilesRemoved"], "added": done["numFilesAdded"]}

    def vacuum(self, name: str, hours: int, *, dry_run: bool) -> int:
        """Remove files that no version of so many hours has, also those that no commit ever named; how many."""
        with _answering(self.uri(name)):
            return len(self._opened(name).delta.vacuum(hours, dry_run=dry_run, full=True))

    def _opened(self, name: str) -> StoredTable:
        table = self.open(name)
        if table is None:
            raise ServiceError(f"{self.uri(name)} has gone")
        return table

    def names(self) -> list[str]:
        """The names of the directories below the path, sorted: tables, and whatever else is there."""
        with _answering(self._root):
            if not self._remote:
                return directories(self._root)
            infos = self._file_system(self._root).get_file_info(fs.FileSelector("", allow_not_found=True))
            return sorted(info.base_name for info in infos if info.type == fs.FileType.Directory)

    def uri(self, name: str) -> str:
        """Where the table of a name is."""
        return f"{self._root}/{name}"

    @property
    def directory(self) -> str | None:
        """See LakeStore."""
        return None if self._remote else self._root

    def typed(self, schema: Any) -> Any:
        """The schema itself: what sinks make of definitions are Delta's types."""
        return schema

    def make(self, name: str, batches: Any, versions: Mapping[str, int], *, partitioned_by: str, says: str) -> None:
        """Make a table in one commit: see LakeStore."""
        with _answering(uri := self.uri(name)):
            write_deltalake(
                uri, batches, partition_by=[partitioned_by], mode="error", description=says,
                storage_options=self._options or None, target_file_size=self._file_bytes,
                commit_properties=_noting(with_format(versions)),
            )  # fmt: skip

    def widen(self, name: str, table: StoredTable, schema: Any) -> None:
        """Add columns: see LakeStore."""
        self._write(name, table, pa.RecordBatchReader.from_batches(schema, []), {}, "append", "merge")

    def rewrite(self, name: str, table: StoredTable, batches: Any, versions: Mapping[str, int]) -> None:
        """Put these rows and columns in place of all that are there, in one commit: see LakeStore."""
        self._write(name, table, batches, versions, "overwrite", "overwrite")

    def _write(
        self,
        name: str,
        table: StoredTable,
        batches: Any,
        versions: Mapping[str, int],
        mode: Literal["append", "overwrite"],
        schema_mode: Literal["merge", "overwrite"],
    ) -> None:
        with _answering(self.uri(name)):
            write_deltalake(
                table.delta, batches, mode=mode, schema_mode=schema_mode, target_file_size=self._file_bytes,
                storage_options=self._options or None, commit_properties=_noting(versions),
            )  # fmt: skip

    def stage(self, name: str, table: StoredTable, batches: Any, *, here: bool = False) -> Sequence[Any]:
        """Write rows as files below the table: see LakeStore. A full vacuum removes those that no commit names."""
        with _answering(uri := self.uri(name)):
            if self._is_for_delta(table, here):
                return [_ForDelta(batches)]
            return self._files(uri, table, batches, batches.schema)

    def stage_merge(
        self, name: str, table: StoredTable, rows: Any, named_by: Sequence[str], *, here: bool = False
    ) -> tuple[Sequence[Any], Sequence[str]]:
        """Write rows, and what stays of files with some of these, as files below the table: see LakeStore."""
        with _answering(uri := self.uri(name)):
            if self._is_for_delta(table, here):
                return [_ForDelta(rows, tuple(named_by))], []
            added = conform_table(rows.filter(pc.invert(rows[_GONE])).drop_columns([_GONE]), table.schema)
            unchanged, replaced = table.without(rows.select(list(named_by)))
            staged = pa.concat_tables([added, *unchanged])
            return self._files(uri, table, staged.to_batches(), table.schema), replaced

    def _is_for_delta(self, table: StoredTable, here: bool) -> bool:
        """Whether delta-rs has to write rows itself. Of S3 it does so here, as the file system that it has for others
        stops all of this process's threads while it asks.
        """
        return table.is_checked(here=here) or (here and self._remote)

    def _files(self, uri: str, table: StoredTable, batches: Iterable[Any], schema: Any) -> Sequence[ParquetFile]:
        return write_files(self._file_system(uri), batches, schema, table.partitioned_by, self._file_bytes)

    def _file_system(self, uri: str) -> Any:
        return fs.PyFileSystem(DeltaStorageHandler(uri, self._options)) if self._remote else local_files(uri)

    def commit_staged(
        self,
        name: str,
        table: StoredTable,
        files: Sequence[Any],
        versions: Mapping[str, int],
        replaced: Sequence[str] = (),
    ) -> None:
        """Add the rows of staged files, in place of others: see LakeStore."""
        if any(isinstance(file, _ForDelta) for file in files):
            [rows] = files
            self._commit_by_delta(name, table, rows, versions)
            return
        if not self._remote:
            require_files(self.uri(name), [(file.path, file.size) for file in files])
        now = int(time.time() * 1000)
        adds = [AddAction(file.path, file.size, file.partition, now, True, file.stats) for file in files]
        with _answering(self.uri(name)):
            removes = table.removals(replaced, now)
            table.delta.create_write_transaction(
                [*adds, *removes],
                "append",
                table.delta.schema(),
                table.delta.metadata().partition_columns,
                commit_properties=_noting(versions, only_now=bool(replaced)),
            )

    def _commit_by_delta(
        self, name: str, table: StoredTable, unwritten: _ForDelta, versions: Mapping[str, int]
    ) -> None:
        """Have delta-rs write rows, which it may check, compute or rename meanwhile."""
        rows, named_by = unwritten.rows, unwritten.named_by
        if named_by is None:
            self._write(name, table, rows, versions, "append", "merge")
            return
        same_row = " AND ".join(f't."{column}" = s."{column}"' for column in named_by)
        # Said outright, the parts need not be looked for in the rows before files are chosen.
        parts = ", ".join(map(str, sorted(pc.unique(rows[named_by[0]]).to_pylist())))
        same_row += f' AND t."{named_by[0]}" IN ({parts})'
        with _answering(self.uri(name)):
            noting = _noting(versions)
            merging = table.delta.merge(rows, same_row, "s", "t", streamed_exec=False, commit_properties=noting)
            merging = merging.when_matched_delete('s."gone"')
            merging = merging.when_matched_update_all(except_cols=[_GONE])
            done = merging.when_not_matched_insert_all('NOT s."gone"', except_cols=[_GONE]).execute()
        # delta-rs makes no commit where nothing changes.
        if not done["num_target_files_added"] + done["num_target_files_removed"]:
            self.commit_staged(name, table, [], versions)


@dataclass(frozen=True, slots=True)
class _ForDelta:
    """Rows that delta-rs itself has to write: a pyarrow Table, with `named_by` as for `stage_merge`; or a reader of new
    ones.
    """

    rows: Any
    named_by: tuple[str, ...] | None = None


class StoredTable:
    """One table as it was at one version."""

    def __init__(self, delta: DeltaTable, files: Any | None) -> None:
        """`files`: the pyarrow FileSystem that has the table at its root; None: deltalake's own."""
        self.delta = delta
        self._files = files
        self._dataset: Any | None = None

    @property
    def schema(self) -> Any:
        """Its pyarrow Schema, in plain types: no large or view strings, lists whose elements are `item`."""
        return pa.schema([pa.field(field.name, plain_type(field.type)) for field in pa.schema(self.delta.schema())])

    def read(self, columns: Sequence[str], condition: Condition, keys: Collection[bytes] | None = None) -> Any:
        """A pyarrow Table of these columns of some rows: see LakeTable."""
        schema = self.schema
        read_schema = pa.schema([schema.field(column) for column in columns])
        named = None if keys is None else pa.array(list(keys), pa.binary())
        tables, waiting, rows = list[Any](), list[Any](), 0
        with _answering(self.delta.table_uri):
            for batch in self._opened().to_batches(columns=list(columns), filter=pq.filters_to_expression(condition)):
                waiting.append(pa.Table.from_batches([batch]).cast(read_schema))
                rows += len(batch)
                if rows >= _LOOKED_AT:
                    tables.append(rows_of_keys(waiting, named))
                    waiting, rows = [], 0
        return pa.concat_tables([*tables, rows_of_keys([read_schema.empty_table(), *waiting], named)])

    def without(self, named: Any) -> tuple[list[Any], list[str]]:
        """What stays of files that have some of these rows, pyarrow Tables, and the paths of these files.

        `named` has the columns that name a row, first the one that the table is partitioned by.
        """
        schema, dataset = self.schema, self._opened()
        parts = named[named.column_names[0]].combine_chunks().unique()
        unchanged, paths = list[Any](), list[str]()
        for fragment in dataset.get_fragments(filter=pc.field(named.column_names[0]).isin(parts)):
            names = fragment.to_table(schema=dataset.schema, columns=named.column_names).cast(named.schema)
            stays = not_among(names, named)
            if stays is not None:
                unchanged.append(fragment.to_table(schema=dataset.schema).filter(stays).cast(schema))
                paths.append(fragment.path)
        return unchanged, paths

    def removals(self, paths: Sequence[str], now: int) -> list[RemoveAction]:
        """What removes files of the table, at a time in milliseconds. Raises ServiceError where it has one no more."""
        if not paths:
            return []
        files = pa.table(self.delta.get_add_actions())
        existing = dict(zip(files["path"].to_pylist(), files["partition"].to_pylist(), strict=True))
        if missing := [path for path in paths if path not in existing]:
            raise ServiceError(f"{self.delta.table_uri}: another writer came first: {missing[0]} is not its any more")
        return [
            RemoveAction(path, True, now, None, {name: str(value) for name, value in existing[path].items()})
            for path in paths
        ]

    def _opened(self) -> Any:
        if self._dataset is None:  # to list all of its files takes as long as to read a few
            # In plain types from the start: to make these of views costs more than to ask for them.
            self._dataset = self.delta.to_pyarrow_dataset(schema=self.schema, filesystem=self._files)
        return self._dataset

    def version_of(self, application: str) -> int | None:
        """What was last noted for an application id; None: nothing."""
        return self.delta.transaction_version(application)

    @property
    def identity(self) -> str:
        """See LakeTable."""
        return str(self.delta.metadata().id)

    @property
    def says(self) -> str:
        """See LakeTable."""
        return self.delta.metadata().description or ""

    @property
    def partitioned_by(self) -> str | None:
        """The column that it is partitioned by, where it is."""
        [*columns] = self.delta.metadata().partition_columns
        return columns[0] if columns else None

    def is_checked(self, *, here: bool) -> bool:
        """Whether rows are checked, computed or renamed as they are written, which delta-rs does.

        That is what somebody made of the table: constraints, invariants, generated columns, column mapping. Raises
        HereOnlyError for such a table, but `here`.
        """
        metadata, features = self.delta.metadata(), set(self.delta.protocol().writer_features or [])
        of_fields = {key for field in self.delta.schema().fields for key in field.metadata if key.startswith("delta.")}
        settings = {key for key in metadata.configuration if key.startswith(_CHECKED)}
        problems = of_fields | settings | (features - _UNCHECKED)
        if len(metadata.partition_columns) > 1:
            problems.add("several partition columns")
        if problems and not here:
            raise HereOnlyError(f"{self.delta.table_uri} has {', '.join(sorted(problems))}")
        return bool(problems)


def _noting(versions: Mapping[str, int], *, only_now: bool = False) -> CommitProperties:
    """`only_now`: behind any other commit this one fails."""
    noted = [Transaction(app, version) for app, version in sorted(versions.items())]
    # delta-rs would make a commit again that removes files which another one, such as a compaction's, has removed.
    return CommitProperties(app_transactions=noted, max_commit_retries=0 if only_now else None)


@contextmanager
def _answering(uri: str) -> Iterator[None]:
    """What deltalake raises, as ours; its messages have no credentials in them."""
    try:
        yield
    except CommitFailedError as error:
        raise ServiceError(f"{uri}: another writer came first: {_said(error)}") from error
    except (SchemaMismatchError, DeltaProtocolError) as error:
        raise TableRefusedError(f"{uri}: {_said(error)}") from error
    except (DeltaError, OSError) as error:
        reason = _said(error)
        of_table = isinstance(error, DeltaError) and any(words in reason for words in _OF_THE_TABLE)
        refused = of_table or is_of_a_name(error)
        raise (TableRefusedError if refused else ServiceError)(f"{uri}: {reason}") from error


def _said(error: Exception) -> str:
    """A message in one line, without colours and without rows of the table."""
    words = str(error).split(_ROWS)[0]
    return " ".join(_COLOURS.sub("", words).replace("↳", "").split())
