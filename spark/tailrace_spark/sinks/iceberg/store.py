"""Iceberg tables of a catalog, through Spark: what a sink does with them.

Rows are written into a snapshot that no reader sees; then one commit makes it the table's and notes the versions, as
properties of the table, so that neither compaction nor the expiry of snapshots takes them away. What was staged and
never became the table's goes when snapshots expire.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
from pydantic import SecretStr
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from tailrace_common.settings.sinks.iceberg import IcebergSinkSettings
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.sinks.arrow.types import conform, grown
from tailrace_spark.sinks.iceberg.catalog import CATALOG, Catalog
from tailrace_spark.sinks.lake.local_root import require_writable, taking_turns
from tailrace_spark.sinks.lake.store import Condition, plain_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STAGE: Final = "spark.wap.id"
_MAY_STAGE: Final = "write.wap.enabled"
_GONE: Final = "gone"
_ORPHAN_HOURS: Final = 24  # what is younger may be of a batch that is being written


class IcebergStore:
    """The Iceberg tables of a section's catalog; see `LakeStore` for the promises.

    On local disks without a catalog those who write take turns, by a lock on the directory: there a commit renames a
    file, and of two that do so at a time the first is lost.
    """

    def __init__(self, settings: IcebergSinkSettings, session: Callable[[], SparkSession]) -> None:
        """`session` gives the Spark that writes; it is asked when it is first needed."""
        self._remote = settings.remote
        self._path = settings.path.rstrip("/") if self._remote else os.path.abspath(settings.path)
        self._root = tuple(settings.namespace.split(".")) if settings.namespace else ()
        self._file_bytes = settings.file_mebibytes << 20
        self._properties = catalog_properties(settings, self._path)
        keys = (settings.access_key, settings.secret_key, *settings.catalog.root.values())
        self._secrets = [one.get_secret_value() for one in keys if isinstance(one, SecretStr)]
        self._session = session
        self._known: Catalog | None = None

    @property
    def _catalog(self) -> Catalog:
        if self._known is None:
            self._known = Catalog(self._session(), self._properties, self._secrets)
        return self._known

    def reach(self) -> None:
        """See that the directory may be written, and the catalog answers. Raises ServiceError."""
        if not self._remote:
            require_writable(self._path)
        self.names()

    def open(self, name: str) -> IcebergTable | None:
        """The table of a name, as it is now; None where there is none."""
        with self._catalog.answering(self.uri(name)):
            java = self._catalog.load(*self._place(name))
            return None if java is None else IcebergTable(self._catalog, java, self._quoted(name))

    def names(self) -> list[str]:
        """The names of all tables, sorted: KEYSPACE.NAME, and those of states and dead letters."""
        with self._catalog.answering(self._path):
            return sorted(f"{keyspace}.{name}" for keyspace, name in self._catalog.names(self._root))

    def uri(self, name: str) -> str:
        """The table's name in the catalog, and the warehouse."""
        return f"{'.'.join((*self._root, name))} in {self._path}"

    def typed(self, schema: Any) -> Any:
        """The schema in types that Iceberg has: no whole numbers of less than 32 bits."""
        return pa.schema([pa.field(field.name, _typed(field.type)) for field in schema])

    def append(
        self,
        name: str,
        table: IcebergTable | None,
        batches: Any,
        versions: Mapping[str, int],
        *,
        partitioned_by: str | None = None,
        says: str = "",
    ) -> None:
        """Add rows, and columns where they have more: see LakeStore."""
        if table is None:
            self._make(name, None, batches, versions, partitioned_by, says)
            return
        rows = self._rows(batches)
        with self._writing(name):
            wider = grown(table.schema, rows.schema)
            if wider is not None and wider != table.schema:
                self._catalog.widen(self._now(name).java, self._frame(rows.schema.empty_table()).schema)
            staged = None
            if len(rows):
                staged = self._staging(name, lambda: self._frame(rows).writeTo(self._quoted(name)).append())
            self._publish(name, table, staged, versions)

    def rewrite(
        self,
        name: str,
        table: IcebergTable | None,
        batches: Any,
        versions: Mapping[str, int],
        *,
        partitioned_by: str | None = None,
        says: str = "",
    ) -> None:
        """As `append`, but with these rows and columns in place of all that are there.

        Where another writer came in between, ServiceError is raised behind the commit: what it noted is what is there.
        """
        self._make(name, table, batches, versions, partitioned_by, says)

    def merge(
        self, name: str, table: IcebergTable, rows: Any, named_by: Sequence[str], versions: Mapping[str, int]
    ) -> None:
        """Put rows in place, or where they are not there, add them: see LakeStore."""
        rows = self._rows(rows.to_reader())
        within = ", ".join(str(number) for number in sorted(set(rows[named_by[0]].to_pylist()))) or "NULL"
        same = " AND ".join(f"t.`{column}` = s.`{column}`" for column in named_by)
        columns = [column for column in rows.schema.names if column != _GONE]

        def put() -> None:
            source = f"tailrace_{uuid4().hex}"
            self._frame(rows).createOrReplaceTempView(source)
            try:
                self._catalog.session.sql(
                    f"MERGE INTO {self._quoted(name)} t USING {source} s"  # noqa: S608 - all names are quoted
                    f" ON t.`{named_by[0]}` IN ({within}) AND {same}"
                    f" WHEN MATCHED AND s.{_GONE} THEN DELETE"
                    f" WHEN MATCHED THEN UPDATE SET {', '.join(f't.`{column}` = s.`{column}`' for column in columns)}"
                    f" WHEN NOT MATCHED AND NOT s.{_GONE} THEN INSERT ({', '.join(f'`{c}`' for c in columns)})"
                    f" VALUES ({', '.join(f's.`{column}`' for column in columns)})"
                )
            finally:
                self._catalog.session.catalog.dropTempView(source)

        with self._writing(name):
            self._publish(name, table, self._staging(name, put), versions)

    def describe(self, name: str) -> dict[str, object]:
        """What there is of a table: its snapshots, and its files and their bytes as of the newest."""
        with self._catalog.answering(self.uri(name)):
            java = self._now(name).java
            newest = java.currentSnapshot()
            said = {} if newest is None else dict(newest.summary())
            files = [int(said.get(f"total-{kind}", 0)) for kind in ("data-files", "delete-files")]
            return {
                "table": name,
                "snapshots": java.operations().current().snapshots().size(),
                "files": sum(files),
                "bytes": int(said.get("total-files-size", 0)),
            }

    def compact(self, name: str) -> dict[str, object]:
        """Put a table's small files together, up to the size of the section; how many went, and how many came."""
        options = f"map('target-file-size-bytes', '{self._file_bytes}', 'min-input-files', '2')"
        with self._writing(name):
            done = self._call("rewrite_data_files", name, f"options => {options}")
            return {"removed": done["rewritten_data_files_count"], "added": done["added_data_files_count"]}

    def expire(self, name: str, hours: int, *, dry_run: bool) -> dict[str, object]:
        """Forget snapshots that are older than so many hours, with the files that only they have.

        Also files that no snapshot has, of a day or more, as crashes leave them. With `dry_run`, only how many.
        """
        now = datetime.now(UTC)
        before, orphaned = (
            f"TIMESTAMP '{now - timedelta(hours=ago):%Y-%m-%d %H:%M:%S.%f}'"
            for ago in (hours, max(hours, _ORPHAN_HOURS))
        )
        with self._writing(name):
            table, session = self._quoted(name), self._catalog.session
            kept = session.table(f"{table}.refs").select("snapshot_id")
            old = session.table(f"{table}.snapshots").where(f"committed_at < {before}")
            count = old.join(kept, "snapshot_id", "left_anti").count()
            if not dry_run:
                self._call("expire_snapshots", name, f"older_than => {before}", "retain_last => 1")
            listing = f"prefix_listing => {str(self._remote).lower()}"
            asked = [f"older_than => {orphaned}", f"dry_run => {str(dry_run).lower()}", listing]
            orphans = self._called("remove_orphan_files", name, *asked)
            return {"snapshots": count, "orphans": len(orphans)}

    def _call(self, procedure: str, name: str, *given: str) -> Any:
        [row] = self._called(procedure, name, *given)
        return row

    def _called(self, procedure: str, name: str, *given: str) -> list[Any]:
        table = self._quoted(name).replace("'", "\\'")
        said = ", ".join([f"table => '{table}'", *given])
        return self._catalog.session.sql(f"CALL {CATALOG}.system.{procedure}({said})").collect()

    def _make(
        self,
        name: str,
        table: IcebergTable | None,
        batches: Any,
        versions: Mapping[str, int],
        partitioned_by: str | None,
        says: str,
    ) -> None:
        """A table of these rows alone, new or in place of another one, in one commit."""
        properties = {
            _MAY_STAGE: "true",
            "comment": says,
            "format-version": "2",
            "write.target-file-size-bytes": str(self._file_bytes),
            "write.metadata.delete-after-commit.enabled": "true",  # each batch leaves two
            **{application: str(version) for application, version in versions.items()},
        }
        with self._writing(name):
            self._catalog.require_namespace(self._place(name)[0])
            writer = self._frame(self._rows(batches)).writeTo(self._quoted(name)).using("iceberg")
            if partitioned_by is not None:
                writer = writer.partitionedBy(F.col(partitioned_by))
            for key, value in properties.items():
                writer = writer.tableProperty(key, value)
            if table is None:
                writer.create()
                return
            self._require(table, self._now(name), versions)
            writer.replace()
            before = self._now(name).java.operations().current().previousFiles()
            if before.size() == 0 or before.get(before.size() - 1).file() != table.metadata_file:
                raise ServiceError(f"{self.uri(name)}: another writer came first")

    def _staging(self, name: str, write: Callable[[], None]) -> str:
        """Have what is written be staged; as what. Raises SettingsError where the table would show it at once."""
        if self._now(name).java.properties().get(_MAY_STAGE) != "true":
            raise SettingsError(f"{self.uri(name)}: set its property {_MAY_STAGE} to true again, as it was made")
        staged = f"tailrace-{uuid4()}"
        self._catalog.session.conf.set(_STAGE, staged)
        try:
            write()
        finally:
            self._catalog.session.conf.unset(_STAGE)
        return staged

    def _publish(self, name: str, table: IcebergTable, staged: str | None, versions: Mapping[str, int]) -> None:
        if staged is None and not versions:
            return
        noted = {application: table.java.properties().get(application) for application in versions}
        said = {application: str(version) for application, version in versions.items()}
        self._catalog.publish(self._now(name).java, staged, noted, said)

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        """While inside, no other process of ours writes where renaming is all there is; errors are ours."""
        with self._catalog.answering(self.uri(name)):
            if self._properties.get("type") != "hadoop":
                yield
                return
            with taking_turns(self._path):
                yield

    def _require(self, table: IcebergTable, now: IcebergTable, versions: Mapping[str, int]) -> None:
        if any(table.version_of(application) != now.version_of(application) for application in versions):
            raise ServiceError(f"{now.quoted}: another writer came first")

    def _now(self, name: str) -> IcebergTable:
        table = self.open(name)
        if table is None:
            raise ServiceError(f"{self.uri(name)} has gone")
        return table

    def _rows(self, batches: Any) -> Any:
        """A pyarrow Table of a RecordBatchReader's rows, in types that Iceberg has."""
        schema = self.typed(batches.schema)
        found = [conform(batch, schema) for batch in batches]
        return pa.Table.from_batches(found) if found else schema.empty_table()

    def _frame(self, rows: Any) -> DataFrame:
        return self._catalog.session.createDataFrame(rows)

    def _place(self, name: str) -> tuple[tuple[str, ...], str]:
        """The namespace and the name of a table; no keyspace has a dot in its name."""
        keyspace, _, rest = name.partition(".")
        return (*self._root, keyspace), rest

    def _quoted(self, name: str) -> str:
        namespace, rest = self._place(name)
        return ".".join(f"`{part.replace('`', '``')}`" for part in (CATALOG, *namespace, rest))


class IcebergTable:
    """One table as it was when it was opened."""

    def __init__(self, catalog: Catalog, java: Any, quoted: str) -> None:
        """`java` is Iceberg's Table, `quoted` its name in SQL."""
        self.java = java
        self.quoted = quoted
        self._catalog = catalog

    @property
    def schema(self) -> Any:
        """Its pyarrow Schema: see LakeTable."""
        there = to_arrow_schema(self._catalog.fields(self.java))
        return pa.schema([pa.field(field.name, plain_type(field.type)) for field in there])

    @property
    def overlaps(self) -> bool:
        """No: Spark's jobs are this thread's, and to read in parts is a job each."""
        return False

    @property
    def metadata_file(self) -> str:
        """Where what is known of it stands."""
        return str(self.java.operations().current().metadataFileLocation())

    def read(self, columns: Sequence[str], which: Condition, keys: Collection[bytes] | None = None) -> Any:
        """A pyarrow Table of these columns of some rows: see LakeTable."""
        wanted = pa.schema([self.schema.field(column) for column in columns])
        snapshot = self.java.currentSnapshot()
        if snapshot is None:
            return wanted.empty_table()
        session = self._catalog.session
        with self._catalog.answering(self.quoted):
            found = session.read.option("versionAsOf", snapshot.snapshotId()).table(self.quoted).where(which.sql)
            if keys is not None:
                named = session.createDataFrame(pa.table({columns[0]: pa.array(sorted(keys), pa.binary())}))
                found = found.join(F.broadcast(named), columns[0], "left_semi")
            return found.select(*columns).toArrow().cast(wanted)

    def version_of(self, application: str) -> int | None:
        """What was last noted for an application id, as a property; None: nothing."""
        noted = self.java.properties().get(application)
        return None if noted is None else int(noted)


def catalog_properties(settings: IcebergSinkSettings, path: str) -> dict[str, str]:
    """What Iceberg's catalog is told; what is not said of S3 it finds as AWS's own tools do."""
    given = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in settings.catalog.reveal().items()
    }
    ours = {"type": "hadoop"} if not given else {}
    if given.get("type") == "jdbc":
        ours["jdbc.schema-version"] = "V1"  # what other clients write too
    if settings.remote:
        secret, key = settings.secret_key, settings.access_key
        said = {
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.access-key-id": None if key is None else key.get_secret_value(),
            "s3.secret-access-key": None if secret is None else secret.get_secret_value(),
            "client.region": settings.region,
            "s3.endpoint": settings.endpoint,
            "s3.path-style-access": "true" if settings.endpoint else None,
        }
        ours |= {name: value for name, value in said.items() if value is not None}
    return {"warehouse": path, **ours, **given}


def _typed(of: Any) -> Any:
    if pa.types.is_struct(of):
        return pa.struct([pa.field(field.name, _typed(field.type)) for field in of])
    if pa.types.is_list(of):
        return pa.list_(_typed(of.value_type))
    return pa.int32() if pa.types.is_int8(of) or pa.types.is_int16(of) else of
