"""Delta's transactions in Spark's Java: what is asked of them. The one module that knows delta-spark's classes.

What it has for everybody (`DataFrameWriter`, `MERGE`) notes one application id with a commit, and leaves a commit out
without a word where that id has a newer version. So its own transactions are asked, as these commands of it do
(`DeltaLog`, `OptimisticTransaction`). No promise covers these classes, but the jars are locked. They need neither
Delta's extension of SQL nor its catalog, so nothing is changed for whoever else uses this Spark.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tailrace_schemas.errors import ServiceError
from tailrace_spark.sinks.java_errors import java_said

_SETTINGS: Final = {
    "spark.databricks.delta.requiredSparkConfsCheck.enabled": "false",  # extension and catalog: see above
    "spark.databricks.delta.optimizeWrite.enabled": "true",  # a file for each partition, up to the size, not each task
    # A table's files are few here, and each task of a Spark costs more than to look through some thousand.
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.setTransactionsInCrc.maxAllowed": "10000",  # one for each partition of Kafka
    # A merge's are asked of the plan of a MERGE, which this is not.
    "spark.databricks.delta.history.metricsEnabled": "false",
    # By default Spark writes nanoseconds that only Spark reads again, and no one beyond the years that they last for.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    # Names are told apart as CQL does; times are said in UTC.
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
}
# What they say is that somebody was faster.
_OVERTAKEN: Final = ("ConcurrentModificationException", "Concurrent", "MetadataChanged", "ProtocolChanged")
_SESSIONS: Final = "org.apache.spark.sql.classic.SparkSession"
Kind = Literal["Append", "Overwrite", "Merge"]


class DeltaLogs:
    """The tables' logs, in a session of its own: what is set there concerns nobody else who uses this Spark."""

    def __init__(self, spark: SparkSession, file_mebibytes: int) -> None:
        """Files are ended at about so many MiB."""
        self.session = spark.newSession()
        size = {"spark.databricks.delta.optimizeWrite.binSize": f"{file_mebibytes}m"}
        for name, value in {**_SETTINGS, **size}.items():
            self.session.conf.set(name, value)
        internals: Any = self.session  # PySpark has no public way to the Java that it drives
        self._jvm = internals._jvm  # noqa: SLF001 - see above
        self._java = internals._jsparkSession  # noqa: SLF001
        self._delta = self._jvm.org.apache.spark.sql.delta
        self._none = self._jvm.scala.Option.empty()
        self._seqs = self._jvm.scala.jdk.javaapi.CollectionConverters

    @contextmanager
    def answering(self, where: str) -> Iterator[None]:
        """Around all that is asked here: Delta goes by the thread's session; what it raises is raised as ours."""
        sessions = getattr(self._jvm, _SESSIONS)
        before = sessions.getActiveSession()
        sessions.setActiveSession(self._java)
        try:
            yield
        except (Py4JError, PySparkException) as error:
            said = java_said(error)
            overtaken = any(name in said for name in _OVERTAKEN)
            raise ServiceError(f"{where}: {'another writer came first: ' if overtaken else ''}{said}") from error
        finally:
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()

    def snapshot(self, path: str) -> Any:
        """Delta's Snapshot of a table as it is now; its version is -1 where there is none."""
        return self._log(path).update(False, self._none, self._none)

    def fields(self, snapshot: Any) -> StructType:
        """A table's columns."""
        return StructType.fromJson(json.loads(snapshot.schema().json()))

    def version_of(self, snapshot: Any, application: str) -> int | None:
        """What was last noted for an application id; None: nothing."""
        # What stands beside a commit of Delta's own spares a job; beside one of delta-rs's nothing does.
        checksum = snapshot.checksumOpt()
        beside = checksum.get().setTransactions() if checksum.isDefined() else self._none
        if beside.isDefined():
            return next((int(one.version()) for one in self.listed(beside.get()) if one.appId() == application), None)
        noted = snapshot.transactions().get(application)
        return int(noted.get()) if noted.isDefined() else None

    def begin(self, snapshot: Any, path: str, noting: Iterable[str]) -> Transaction:
        """What may be committed only where nothing came behind a snapshot that had it be otherwise.

        Such as a version of one of the application ids in `noting`. Where the snapshot is of no table, any commit is.
        """
        java = self._log(path).startTransaction(self._none, self._jvm.scala.Option.apply(snapshot))
        for application in noting:
            java.readTxn().addOne(application)  # as `txnVersion` does, which has a job look for the version, too
        return Transaction(self, java, snapshot)

    def frame(self, snapshot: Any, files: Iterable[Any]) -> DataFrame:
        """The rows of some of a table's files."""
        java = snapshot.deltaLog().createDataFrame(snapshot, self.seq(files), False, self._none)
        return DataFrame(java, self.session)

    def files(self, snapshot: Any, condition: str) -> list[Any]:
        """Those of a table's files that may have rows for which a condition in SQL holds."""
        return list(self._seqs.asJava(snapshot.filesForScan(self.parsed(condition), False).files()))

    def seq(self, of: Iterable[Any]) -> Any:
        """A Scala Seq."""
        listed = self._jvm.java.util.ArrayList()
        for one in of:
            listed.add(one)
        return self._seqs.asScala(listed).toSeq()

    def listed(self, of: Any) -> list[Any]:
        """What is in a Scala Seq."""
        return list(self._seqs.asJava(of))

    def action(self, name: str, fields: Mapping[str, object]) -> Any:
        """An Action, as a commit's file has it."""
        return self._delta.actions.Action.fromJson(json.dumps({name: fields}))

    def parsed(self, condition: str) -> Any:
        """A Seq of one Expression, of a condition in SQL."""
        return self.seq([self._java.sessionState().sqlParser().parseExpression(condition)])

    def merged(self, snapshot: Any, fields: StructType) -> str:
        """A table's columns and those of rows, by their names, as JSON; the table's keep their metadata."""
        java = self._jvm.org.apache.spark.sql.types.DataType.fromJson(fields.json())
        narrow = getattr(getattr(self._delta, "TypeWideningMode$NoTypeWidening$"), "MODULE$")
        merging = self._delta.schema.SchemaMergingUtils
        return str(merging.mergeSchemas(snapshot.schema(), java, False, False, narrow, True).json())

    def operation(self, kind: Kind) -> Any:
        """What a commit says it is."""
        if kind == "Merge":
            nothing = self.seq([])
            return getattr(self._delta, "DeltaOperations$Merge")(*[self._none] * 4, nothing, nothing, nothing)
        mode = getattr(self._jvm.org.apache.spark.sql.SaveMode, kind)
        return getattr(self._delta, "DeltaOperations$Write")(mode, *[self._none] * 8)

    def _log(self, path: str) -> Any:
        return self._delta.DeltaLog.forTable(self._java, path)


class Transaction:
    """What becomes one commit, or none."""

    def __init__(self, logs: DeltaLogs, java: Any, snapshot: Any) -> None:
        self._logs = logs
        self._java = java
        self._snapshot = snapshot
        self._actions: list[Any] = []

    def describe(self, **fields: object) -> None:
        """Have metadata fields, as a commit's file has them, be others than they are."""
        said = json.loads(self._java.metadata().json())["metaData"]
        if any(said.get(name) != value for name, value in fields.items()):
            self._java.updateMetadata(self._logs.action("metaData", {**said, **fields}), False)

    def widen(self, fields: StructType) -> None:
        """Add the columns, and fields of columns, that the table does not have yet."""
        merged = self._logs.merged(self._snapshot, fields)
        if merged != self._snapshot.schema().json():
            self.describe(schemaString=merged)

    def reads(self, condition: str | None) -> list[Any]:
        """Those of the table's files that may have such rows; None: all. Nothing else may write such ones meanwhile."""
        found = (
            self._java.filterFiles()
            if condition is None
            else self._java.filterFiles(self._logs.parsed(condition), False)
        )
        return self._logs.listed(found)

    def write(self, rows: DataFrame) -> None:
        """Add rows, in files that no reader knows of yet."""
        self._actions += self._logs.listed(self._java.writeFiles(rows._jdf))  # noqa: SLF001 - there is no public way

    def remove(self, files: Iterable[Any]) -> None:
        """Take files away."""
        self._actions += [file.remove() for file in files]

    def commit(self, kind: Kind, versions: Mapping[str, int]) -> None:
        """Make all of it the table's, and note a version for each application id."""
        now = time.time_ns() // 1_000_000
        noted = [
            self._logs.action("txn", {"appId": application, "version": version, "lastUpdated": now})
            for application, version in sorted(versions.items())
        ]
        self._java.commit(self._logs.seq([*self._actions, *noted]), self._logs.operation(kind))
