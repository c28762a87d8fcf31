"""Iceberg's catalog and tables in Spark's Java: what is asked of them. The one module that knows Iceberg's classes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tailrace_schemas.errors import ServiceError
from tailrace_spark.sinks.lake.java_errors import java_class, java_said
from tailrace_spark.sinks.table_faults import TableRefusedError

CATALOG: Final = "tailrace"
"""What the catalog is called in a store's session."""
_SETTING: Final = f"spark.sql.catalog.{CATALOG}"
# What they say is that somebody was faster, by an older version or a file that is no longer there.
_OVERTAKEN: Final = ("CommitFailedException", "AlreadyExistsException", "ValidationException", "TABLE_OR_VIEW_ALREADY")
_NOT_FOUND: Final = "NOT_FOUND"
_GONE: Final = ("NoSuchTableException", "NoSuchNamespaceException", "NotFoundException")


class Catalog:
    """One catalog, in a session of its own: what is set there concerns nobody else who uses this Spark."""

    def __init__(self, spark: SparkSession, properties: Mapping[str, str], secrets: Collection[str]) -> None:
        """`secrets`: values that no message may have. Raises ServiceError where it cannot be reached."""
        self.session = spark.newSession()
        self._secrets = secrets
        settings = {_SETTING: "org.apache.iceberg.spark.SparkCatalog", f"{_SETTING}.cache-enabled": "false"}
        settings |= {f"{_SETTING}.{name}": value for name, value in properties.items()}
        # Names are told apart as CQL does; times are said in UTC.
        settings |= {"spark.sql.caseSensitive": "true", "spark.sql.session.timeZone": "UTC"}
        for name, value in settings.items():
            self.session.conf.set(name, value)
        internals: Any = self.session  # PySpark has no public way to the Java that it drives
        self._jvm = internals._jvm  # noqa: SLF001 - see above
        self._new_array = internals.sparkContext._gateway.new_array  # noqa: SLF001
        self._iceberg = self._jvm.org.apache.iceberg
        with self.answering("the Iceberg catalog"):
            self.session.sql(f"USE {CATALOG}")  # the catalog is made, with these settings
            session = internals._jsparkSession  # noqa: SLF001
            self._java = self._iceberg.spark.Spark3Util.loadIcebergCatalog(session, CATALOG)

    def load(self, namespace: tuple[str, ...], name: str) -> Any | None:
        """Iceberg's Table, as it is now; None where there is none."""
        try:
            return self._java.loadTable(self._identifier(namespace, name))
        except Py4JJavaError as error:
            if java_class(error).endswith(_GONE):
                return None
            raise

    def names(self, root: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        """Namespace and name of all tables in the namespaces right below `root`."""
        try:
            found = [tuple(one.levels()) for one in self._java.listNamespaces(self._namespace(root))]
        except Py4JJavaError as error:
            if java_class(error).endswith(_GONE):
                return
            raise
        for levels in found:
            if len(levels) == len(root) + 1:
                for one in self._java.listTables(self._namespace(levels)):
                    yield levels[-1], one.name()

    def require_namespace(self, levels: tuple[str, ...]) -> None:
        """Have a namespace, and those that it is in."""
        for end in range(1, len(levels) + 1):
            namespace = self._namespace(levels[:end])
            try:
                if not self._java.namespaceExists(namespace):
                    self._java.createNamespace(namespace)
            except Py4JJavaError as error:
                if not java_class(error).endswith("AlreadyExistsException"):
                    raise

    def fields(self, table: Any) -> StructType:
        """A table's columns as Spark has them, all of which may be null."""
        converted = self._iceberg.spark.SparkSchemaUtil.convert(table.schema())
        return StructType.fromJson(json.loads(converted.json()))

    def widen(self, table: Any, fields: StructType) -> None:
        """Add columns, and fields of columns, that a table does not have yet."""
        java = self._jvm.org.apache.spark.sql.types.DataType.fromJson(fields.json())
        table.updateSchema().unionByNameWith(self._iceberg.spark.SparkSchemaUtil.convert(java)).commit()

    def publish(
        self, table: Any, staged: str | None, noted: Mapping[str, str | None], versions: Mapping[str, str]
    ) -> None:
        """Make a staged snapshot what readers see, and note versions as properties, in one commit.

        `table` is as it is now. `noted` is what its properties must be, None for none: else another writer was here.
        Iceberg commits only where the table is still as this looked at. `staged`: what the snapshot was staged as;
        None: nothing was. Raises ServiceError where the snapshot is not there, or not the next one.
        """
        operations = table.operations()
        base = operations.current()
        properties = base.properties()
        if any(properties.get(name) != value for name, value in noted.items()):
            raise ServiceError(f"{table.name()}: another writer came first")
        build = self._iceberg.TableMetadata.buildFrom(base)
        if staged is not None:
            snapshot, current = _staged(base, staged), base.currentSnapshot()
            before = None if current is None else current.snapshotId()
            if snapshot is None or snapshot.parentId() != before:
                raise ServiceError(f"{table.name()}: another writer came first, or it was compacted meanwhile")
            build = build.setBranchSnapshot(snapshot.snapshotId(), "main")
        operations.commit(base, build.setProperties(dict(versions)).build())

    @contextmanager
    def answering(self, where: str) -> Iterator[None]:
        """What Spark and Iceberg raise, as ours: in one line, without credentials."""
        try:
            yield
        except (Py4JError, PySparkException) as error:
            said = java_said(error)
            for secret in self._secrets:
                said = said.replace(secret, "*****")
            if any(name in said for name in _OVERTAKEN):
                raise ServiceError(f"{where}: another writer came first: {said}") from error
            refused = isinstance(error, AnalysisException) and _NOT_FOUND not in said
            raise (TableRefusedError if refused else ServiceError)(f"{where}: {said}") from error

    def _namespace(self, levels: tuple[str, ...]) -> Any:
        array = self._new_array(self._jvm.java.lang.String, len(levels))
        for place, level in enumerate(levels):
            array[place] = level
        return self._iceberg.catalog.Namespace.of(array)

    def _identifier(self, namespace: tuple[str, ...], name: str) -> Any:
        return self._iceberg.catalog.TableIdentifier.of(self._namespace(namespace), name)


def _staged(base: Any, name: str) -> Any | None:
    """The snapshot of a table's metadata that was staged under a name; it is among the newest."""
    snapshots = base.snapshots()
    for place in range(snapshots.size() - 1, -1, -1):
        snapshot = snapshots.get(place)
        if snapshot.summary().get("wap.id") == name:
            return snapshot
    return None
