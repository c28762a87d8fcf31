"""Delta tables below a directory, through Spark: what a sink does with them.

Each commit is made on the version that the table had when it was opened, and Delta refuses it where another writer
noted one of its application ids since, removed a file that it read, or added one that it would have read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from tailrace_common.settings_sink_delta import DeltaSinkSettings
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.sinks.delta_log import DeltaLogs, Kind, Transaction
from tailrace_spark.sinks.lake import Condition, plain_type
from tailrace_spark.sinks.local_root import directories, require_writable, taking_turns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_GONE: Final = "gone"
_FILE: Final = "__file"
_PLAIN_READER: Final = 1


class DeltaSparkStore:
    """The Delta tables below the path of a section; see `LakeStore` for the promises.

    Those who commit take turns, by a lock on the directory: Spark's commit renames a file, and of two that do so at a
    time on local disks the first is lost.
    """

    def __init__(self, settings: DeltaSinkSettings, session: Callable[[], SparkSession]) -> None:
        """`session` gives the Spark that writes; it is asked when it is first needed."""
        self._root = os.path.abspath(settings.path)
        self._file_mebibytes = settings.file_mebibytes
        self._session = session
        self._known: DeltaLogs | None = None

    @property
    def _logs(self) -> DeltaLogs:
        if self._known is None:
            self._known = DeltaLogs(self._session(), self._file_mebibytes)
        return self._known

    def reach(self) -> None:
        """See that the directory may be written. Raises ServiceError."""
        require_writable(self._root)

    def open(self, name: str) -> SparkTable | None:
        """The table of a name, as it is now; None where there is none.

        Raises SettingsError where reading it takes features of Delta that a table of ours does not have.
        """
        uri = self.uri(name)
        if not os.path.isdir(f"{uri}/_delta_log"):
            return None
        with self._logs.answering(uri):
            snapshot = self._logs.snapshot(uri)
            if snapshot.version() < 0:
                return None
            if snapshot.protocol().minReaderVersion() > _PLAIN_READER:
                raise SettingsError(
                    f"{uri} has features that the sink does not read, such as deletion vectors or column mapping: "
                    "drop them (ALTER TABLE ... DROP FEATURE), or give the sink another path"
                )
            return SparkTable(self._logs, snapshot, uri)

    def names(self) -> list[str]:
        """The names of the directories below the path, sorted: tables, and whatever else is there."""
        try:
            return directories(self._root)
        except OSError as error:
            raise ServiceError(f"{self._root}: {error}") from error

    def uri(self, name: str) -> str:
        """Where the table of a name is."""
        return f"{self._root}/{name}"

    def typed(self, schema: Any) -> Any:
        """The schema itself: what sinks make of definitions are Delta's types."""
        return schema

    def append(
        self,
        name: str,
        table: SparkTable | None,
        batches: Any,
        versions: Mapping[str, int],
        *,
        partitioned_by: str | None = None,
        says: str = "",
    ) -> None:
        """Add rows, and columns where they have more: see LakeStore."""
        with self._committing(name, table, versions, "Append") as commit:
            rows = self._frame(batches.read_all())
            if table is None:
                _make(commit, rows, partitioned_by, description=says)
            else:
                commit.widen(rows.schema)
            commit.write(rows)

    def rewrite(
        self,
        name: str,
        table: SparkTable | None,
        batches: Any,
        versions: Mapping[str, int],
        *,
        partitioned_by: str | None = None,
        says: str = "",
    ) -> None:
        """As `append`, but with these rows and columns in place of all that are there."""
        if table is None:
            self.append(name, None, batches, versions, partitioned_by=partitioned_by, says=says)
            return
        with self._committing(name, table, versions, "Overwrite") as commit:
            rows = self._frame(batches.read_all())
            commit.remove(commit.reads(None))
            _make(commit, rows, partitioned_by)
            commit.write(rows)

    def merge(
        self, name: str, table: SparkTable, rows: Any, named_by: Sequence[str], versions: Mapping[str, int]
    ) -> None:
        """Put rows in place, or where they are not there, add them: see LakeStore.

        Only the files that have some of these rows are written anew.
        """
        with self._committing(name, table, versions, "Merge") as commit:
            if len(rows) == 0:
                return
            within = ", ".join(str(number) for number in sorted(set(rows[named_by[0]].to_pylist())))
            files = commit.reads(f"`{named_by[0]}` IN ({within})")
            names = F.broadcast(self._frame(rows.select(list(named_by))))
            stored = self._logs.frame(table.snapshot, files).select("*", F.col("_metadata.file_name").alias(_FILE))
            having = stored.join(names, list(named_by), "left_semi").select(_FILE).distinct().collect()
            touched = {row[0] for row in having}
            anew = [file for file in files if os.path.basename(file.path()) in touched]
            put = self._frame(rows.filter(pc.invert(rows[_GONE])).drop_columns([_GONE]))
            if anew:
                others = self._logs.frame(table.snapshot, anew).join(names, list(named_by), "left_anti")
                put = others.unionByName(put, allowMissingColumns=True)
            commit.remove(anew)
            commit.write(put)

    @contextmanager
    def _committing(
        self, name: str, table: SparkTable | None, versions: Mapping[str, int], kind: Kind
    ) -> Iterator[Transaction]:
        """What is done inside is one commit, on the table as it was opened; errors are ours."""
        uri = self.uri(name)
        with self._logs.answering(uri):
            snapshot = self._logs.snapshot(uri) if table is None else table.snapshot
            if table is None and snapshot.version() >= 0:
                raise ServiceError(f"{uri}: another writer came first: it is there already")
            commit = self._logs.begin(snapshot, uri, versions)
            yield commit
            with taking_turns(self._root):
                commit.commit(kind, versions)

    def _frame(self, rows: Any) -> DataFrame:
        # A table without a chunk, as a filter leaves one, is none that PySpark takes where times are within values.
        return self._logs.session.createDataFrame(rows if len(rows) else rows.schema.empty_table())


class SparkTable:
    """One table as it was when it was opened."""

    def __init__(self, logs: DeltaLogs, snapshot: Any, uri: str) -> None:
        """`snapshot` is Delta's own."""
        self.snapshot = snapshot
        self._logs = logs
        self._uri = uri

    @property
    def overlaps(self) -> bool:
        """No: Spark's jobs are this thread's, and to read in parts is a job each."""
        return False

    @property
    def schema(self) -> Any:
        """Its pyarrow Schema: see LakeTable."""
        there = to_arrow_schema(self._logs.fields(self.snapshot))
        return pa.schema([pa.field(field.name, plain_type(field.type)) for field in there])

    def read(self, columns: Sequence[str], which: Condition, keys: Collection[bytes] | None = None) -> Any:
        """A pyarrow Table of these columns of some rows: see LakeTable."""
        wanted = pa.schema([self.schema.field(column) for column in columns])
        with self._logs.answering(self._uri):
            found = self._logs.frame(self.snapshot, self._logs.files(self.snapshot, which.sql)).where(which.sql)
            if keys is not None:
                named = self._logs.session.createDataFrame(pa.table({columns[0]: pa.array(sorted(keys), pa.binary())}))
                found = found.join(F.broadcast(named), columns[0], "left_semi")
            return found.select(*columns).toArrow().cast(wanted)

    def version_of(self, application: str) -> int | None:
        """What was last noted for an application id; None: nothing."""
        with self._logs.answering(self._uri):
            return self._logs.version_of(self.snapshot, application)


def _make(commit: Transaction, rows: DataFrame, partitioned_by: str | None, **more: object) -> None:
    """Have the table's columns be these rows'."""
    by = [] if partitioned_by is None else [partitioned_by]
    commit.describe(schemaString=rows.schema.json(), partitionColumns=by, **more)
