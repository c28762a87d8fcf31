"""Iceberg tables of a catalog, by pyiceberg: what a sink does with them.

A batch is one commit of each table, which adds and removes files and notes versions. These are properties of the
table, so that neither compaction nor the expiry of snapshots loses them. The catalog refuses it where
the table has another newest snapshot than the one that was read.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import unquote, urlsplit
from weakref import finalize

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import SecretStr
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.transforms import IdentityTransform

from tailrace_common.secrets import REDACTED, redact
from tailrace_schemas.errors import ServiceError, TailraceError
from tailrace_spark.sinks.arrow.types import conform, conform_table
from tailrace_spark.sinks.iceberg.files import (
    change_files,
    data_files,
    expression,
    plain_schema,
    read_rows,
    replace_columns,
    widen,
    without,
    write_rows,
)
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
from tailrace_spark.sinks.lake.staging import require_files, require_writable
from tailrace_spark.sinks.lake.store import Condition, require_readable, with_format
from tailrace_spark.sinks.table_faults import TableRefusedError, is_of_a_name

CATALOG: Final = "tailrace"
"""What the catalog is called. Tables of a SQL catalog are stored under this name, also those that Spark made."""
DATABASE: Final = "catalog.db"
"""The SQLite file in a directory that is its own catalog."""
# Another writer was faster: the table has another snapshot, or exists, or a file that was read is no part of it.
_OVERTAKEN: Final = (CommitFailedException, TableAlreadyExistsError, ValidationException)
# What pyiceberg raises where rows do not fit the table's columns.
_OF_THE_TABLE: Final = (ValueError, TypeError, pa.ArrowException)
_LONGEST: Final = 400
_GONE: Final = "gone"
REQUIRED: Final = {
    # pyiceberg would make a refused commit again on the newer snapshot, and note versions over another writer's.
    TableProperties.COMMIT_NUM_RETRIES: "0",
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",  # each batch leaves a version of the metadata
}


class IcebergCatalog:
    """One catalog; it is connected when it is first asked. Everything raises ServiceError where it does not answer."""

    def __init__(self, settings: IcebergSinkSettings, path: str) -> None:
        """`path` is the warehouse: an absolute path, or s3://BUCKET/PATH."""
        self.properties = catalog_properties(settings, path)
        self._secrets = _secrets(settings)
        self._connected: Catalog | None = None

    @property
    def connected(self) -> Catalog:
        """The catalog of pyiceberg."""
        if self._connected is None:
            try:
                self._connected = load_catalog(CATALOG, **self.properties)
            except Exception as error:  # each kind of catalog has a client of its own, with errors of its own
                raise ServiceError(f"the Iceberg catalog: {self._message(error)}") from error
            finalize(self, self._connected.close)  # its tables are read until nobody has one of them
        return self._connected

    def load(self, namespace: tuple[str, ...], name: str) -> Table | None:
        """The table as it is now; None where there is none."""
        try:
            return self.connected.load_table(self.identifier(namespace, name))
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def names(self, root: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        """Namespace and name of all tables in the namespaces right below `root`."""
        try:
            namespaces = self.connected.list_namespaces(root)
        except NoSuchNamespaceError:
            return
        for namespace in namespaces:
            levels = tuple(namespace)
            if len(levels) == len(root) + 1 and levels[: len(root)] == root:
                for identifier in self.connected.list_tables(levels):
                    yield levels[-1], identifier[-1]

    def require_namespace(self, levels: tuple[str, ...]) -> None:
        """Make a namespace, and those that it is in, where they are not there."""
        for end in range(1, len(levels) + 1):
            try:
                if not self.connected.namespace_exists(levels[:end]):
                    self.connected.create_namespace(levels[:end])
            except NamespaceAlreadyExistsError:
                pass

    def identifier(self, namespace: tuple[str, ...], name: str) -> tuple[str, ...]:
        """A table's name as pyiceberg takes it: catalogs but REST have one level of namespaces, joined by dots."""
        if self.properties.get("type") == "rest":
            return (*namespace, name)
        return (".".join(namespace), name)

    @contextmanager
    def answering(self, where: str) -> Iterator[None]:
        """What pyiceberg and the clients below it raise, as ours: in one line, without credentials."""
        try:
            yield
        except TailraceError:
            raise
        except _OVERTAKEN as error:
            raise ServiceError(f"{where}: another writer came first: {self._message(error)}") from error
        except NoSuchTableError as error:
            raise ServiceError(f"{where}: the table was dropped meanwhile: {self._message(error)}") from error
        except _OF_THE_TABLE as error:
            raise TableRefusedError(f"{where}: {self._message(error)}") from error
        except Exception as error:  # of the catalog's client or the store's: SQLAlchemy, requests, boto3, thrift
            refusal = TableRefusedError if is_of_a_name(error) else ServiceError
            raise refusal(f"{where}: {self._message(error)}") from error

    def _message(self, error: Exception) -> str:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        text = redact(text)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def catalog_properties(settings: IcebergSinkSettings, path: str) -> dict[str, str]:
    """The properties of pyiceberg's catalog and of its files, by pyiceberg's names."""
    configured = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in settings.catalog.reveal().items()
    }
    if not configured:
        configured = {"type": "sql", "uri": f"sqlite:///{path}/{DATABASE}"}
    secret, key = settings.secret_key, settings.access_key
    of_s3 = {
        "s3.access-key-id": None if key is None else key.get_secret_value(),
        "s3.secret-access-key": None if secret is None else secret.get_secret_value(),
        "s3.region": settings.region,
        "s3.endpoint": settings.endpoint,
        # Some tries within half a minute; then the batch is delivered again, and says what it waits for.
        "s3.connect-timeout": "10",
        "s3.request-timeout": "30",
    }
    s3_properties = {name: value for name, value in of_s3.items() if settings.remote and value is not None}
    return {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO", "warehouse": path, **s3_properties, **configured}


def _secrets(settings: IcebergSinkSettings) -> Collection[str]:
    """Values that no message may have."""
    configured: Mapping[str, object] = settings.catalog.root
    secrets = [value.get_secret_value() for value in configured.values() if isinstance(value, SecretStr)]
    password = urlsplit(str(settings.catalog.reveal().get("uri", ""))).password
    keys = [key.get_secret_value() for key in (settings.access_key, settings.secret_key) if key is not None]
    return sorted({*secrets, *keys, password or "", unquote(password or "")} - {""}, key=len, reverse=True)


class IcebergStore:
    """The Iceberg tables of a section's catalog and namespace; see `LakeStore` for the promises."""

    def __init__(self, settings: IcebergSinkSettings, manifests: int = 20) -> None:
        """`manifests`: so many of a table are merged, as a reader opens each."""
        self._settings = settings
        self._manifests = manifests
        self._remote = settings.remote
        self.path = settings.path.rstrip("/") if settings.remote else os.path.abspath(settings.path)
        """The warehouse."""
        self._directory_alone = not settings.catalog.root
        self._root = tuple(settings.namespace.split(".")) if settings.namespace else ()
        self.file_bytes = settings.file_mebibytes << 20
        """About how large a data file gets."""
        self.catalog = IcebergCatalog(settings, self.path)

    def __reduce__(self) -> tuple[type[IcebergStore], tuple[IcebergSinkSettings, int]]:
        """A copy in another process has a connection of its own."""
        return IcebergStore, (self._settings.model_copy(update={"path": self.path}), self._manifests)

    def reach(self) -> None:
        """See that the directory may be written, and the catalog answers. Raises ServiceError."""
        if not self._remote:
            require_writable(self.path)
        self.names()

    def open(self, name: str) -> IcebergTable | None:
        """The table of a name, as it is now; None where there is none. Raises SettingsError for another version's."""
        if not self._catalog_exists():
            return None
        with self.catalog.answering(self.uri(name)):
            table = self.catalog.load(*self.split(name))
        if table is None:
            return None
        opened = IcebergTable(self.catalog, table, self.uri(name))
        require_readable(opened.uri, opened)
        return opened

    def names(self) -> list[str]:
        """The names of all tables, sorted: KEYSPACE.NAME, and those of states."""
        if not self._catalog_exists():
            return []
        with self.catalog.answering(self.path):
            return sorted(f"{keyspace}.{name}" for keyspace, name in self.catalog.names(self._root))

    def uri(self, name: str) -> str:
        """The table's name in the catalog, and the warehouse."""
        return f"{'.'.join((*self._root, name))} in {self.path}"

    def location(self, name: str) -> str:
        """Where a table stands whose catalog does not decide that."""
        namespace, rest = self.split(name)
        return "/".join((self.path, *namespace, rest))

    def split(self, name: str) -> tuple[tuple[str, ...], str]:
        """The namespace and the name of a table; no keyspace has a dot in its name."""
        keyspace, _, rest = name.partition(".")
        return (*self._root, keyspace), rest

    @property
    def directory(self) -> str | None:
        """See LakeStore."""
        return None if self._remote else self.path

    def typed(self, schema: Any) -> Any:
        """The schema in types that Iceberg has: no whole numbers of less than 32 bits."""
        return pa.schema([pa.field(field.name, _typed(field.type)) for field in schema])

    def make(self, name: str, batches: Any, versions: Mapping[str, int], *, partitioned_by: str, says: str) -> None:
        """Make a table: see LakeStore. It is made without rows; what there is follows in one commit."""
        rows = self._rows(batches)
        namespace, rest = self.split(name)
        properties = {
            **REQUIRED,
            **_noted(with_format({})),
            "comment": says,
            TableProperties.FORMAT_VERSION: "2",
            TableProperties.WRITE_TARGET_FILE_SIZE_BYTES: str(self.file_bytes),
        }
        if self._directory_alone:
            os.makedirs(self.path, exist_ok=True)  # for the catalog in it
        with self.catalog.answering(self.uri(name)):
            self.catalog.require_namespace(namespace)
            catalog = self.catalog.connected
            location = None if self.catalog.properties.get("type") == "rest" else self.location(name)
            identifier = self.catalog.identifier(namespace, rest)
            creation = catalog.create_table_transaction(identifier, rows.schema, location, properties=properties)
            with creation as transaction, transaction.update_spec() as spec:
                spec.add_field(partitioned_by, IdentityTransform(), partitioned_by)
        created = self.open(name)
        if created is None or created.snapshot is not None:
            raise ServiceError(f"{self.uri(name)}: another writer came first")
        if versions or len(rows):
            with self._changing(name, created, versions) as transaction:
                self._commit_files(transaction, created, rows, [])

    def widen(self, name: str, table: IcebergTable, schema: Any) -> None:
        """Add columns: see LakeStore."""
        with self._changing(name, table, {}) as transaction:
            widen(transaction, table.schema, self.typed(schema))

    def rewrite(self, name: str, table: IcebergTable, batches: Any, versions: Mapping[str, int]) -> None:
        """Put these rows and columns in place of all that are there: see LakeStore."""
        rows = self._rows(batches)
        with self._changing(name, table, versions) as transaction:
            removed = [task.file for task in table.iceberg.scan().plan_files()]
            replace_columns(transaction, table.schema, rows.schema)
            self._commit_files(transaction, table, rows, removed)

    def _replacing(self, table: IcebergTable, rows: Any, named_by: Sequence[str]) -> tuple[Any, list[DataFile]]:
        """What `stage_merge` writes, a pyarrow Table, and the files in whose place it does."""
        named = rows.select(list(named_by)).combine_chunks()
        touched = [(named_by[0], "in", sorted(set(named[named_by[0]].to_pylist())))]
        added = rows.filter(pc.invert(rows[_GONE])).drop_columns([_GONE])
        parts, removed = [conform_table(added, table.schema)], list[DataFile]()
        for task in table.iceberg.scan(row_filter=expression(touched)).plan_files() if len(rows) else ():
            kept_rows = without(table.iceberg, task, named)
            if kept_rows is not None:
                removed.append(task.file)
                parts.append(kept_rows)
        return pa.concat_tables(parts), removed

    def stage(self, name: str, table: IcebergTable, batches: Any, *, here: bool = False) -> Sequence[DataFile]:
        """Write rows as data files of the table: see LakeStore."""
        del here
        rows = self._rows(batches)
        with self.catalog.answering(self.uri(name)):
            return write_rows(table.iceberg.metadata, table.iceberg.io, rows, self.file_bytes)

    def stage_merge(
        self, name: str, table: IcebergTable, rows: Any, named_by: Sequence[str], *, here: bool = False
    ) -> tuple[Sequence[DataFile], Sequence[str]]:
        """Write rows, and what stays of files with some of these, as data files of the table: see LakeStore."""
        del here
        with self.catalog.answering(self.uri(name)):
            changed, removed = self._replacing(table, rows, named_by)
            files = write_rows(table.iceberg.metadata, table.iceberg.io, changed, self.file_bytes)
            return files, [file.file_path for file in removed]

    def commit_staged(
        self,
        name: str,
        table: IcebergTable,
        files: Sequence[DataFile],
        versions: Mapping[str, int],
        replaced: Sequence[str] = (),
    ) -> None:
        """Add the rows of staged files, in place of others: see LakeStore."""
        if not self._remote:
            require_files("", [(file.file_path.removeprefix("file://"), file.file_size_in_bytes) for file in files])
        with self._changing(name, table, versions) as transaction:
            self._commit_data_files(transaction, table, files, data_files(table.iceberg, table.uri, replaced))

    def commit_compacted(self, table: IcebergTable, added: Sequence[DataFile], removed: Sequence[DataFile]) -> None:
        """Put files in place of others that have the same rows, in one commit."""
        with self._transaction(table, ()) as transaction:
            change_files(transaction, added, removed)

    @contextmanager
    def _changing(self, name: str, table: IcebergTable, versions: Mapping[str, int]) -> Iterator[Transaction]:
        """What is done inside is one commit, on the table as it was opened, and notes versions; errors are ours."""
        with self.catalog.answering(self.uri(name)), self._transaction(table, versions) as transaction:
            yield transaction
            if versions:
                transaction.set_properties(_noted(versions))

    def _transaction(self, table: IcebergTable, versions: Collection[str]) -> Transaction:
        """A transaction on the table as it was opened; pyiceberg does not make it again where it is refused."""
        iceberg = table.copy()
        if any(iceberg.properties.get(key) != value for key, value in REQUIRED.items()):
            with iceberg.transaction() as transaction:
                transaction.set_properties(REQUIRED)
            now = IcebergTable(self.catalog, iceberg, table.uri)
            if now.snapshot != table.snapshot or any(now.version_of(app) != table.version_of(app) for app in versions):
                raise ServiceError(f"{table.uri}: another writer came first")
        return iceberg.transaction()

    def _commit_files(
        self, transaction: Transaction, table: IcebergTable, rows: Any, removed: Sequence[DataFile]
    ) -> None:
        """Have the transaction remove files, and add rows in new ones."""
        added = write_rows(transaction.table_metadata, table.iceberg.io, rows, self.file_bytes)
        self._commit_data_files(transaction, table, added, removed)

    def _commit_data_files(
        self, transaction: Transaction, table: IcebergTable, added: Sequence[DataFile], removed: Sequence[DataFile]
    ) -> None:
        change_files(transaction, added, removed)
        newest = transaction.table_metadata.current_snapshot()
        if removed and newest is not None and len(newest.manifests(table.iceberg.io)) >= self._manifests:
            change_files(transaction, [], [])  # pyiceberg merges manifests where it appends, and only there

    def _rows(self, batches: Any) -> Any:
        """A pyarrow Table of a RecordBatchReader's rows, in types that Iceberg has."""
        schema = self.typed(batches.schema)
        parts = [conform(batch, schema) for batch in batches]
        return pa.Table.from_batches(parts) if parts else schema.empty_table()

    def _catalog_exists(self) -> bool:
        """Whether there is something to ask: a directory's catalog is made with its first table."""
        return not self._directory_alone or os.path.exists(f"{self.path}/{DATABASE}")


class IcebergTable:
    """One table as it was when it was opened."""

    def __init__(self, catalog: IcebergCatalog, iceberg: Table, uri: str) -> None:
        """`iceberg` is pyiceberg's Table; `uri` names it in errors."""
        self.iceberg = iceberg
        self.uri = uri
        self._catalog = catalog

    def copy(self) -> Table:
        """The same table; a commit changes what a Table of pyiceberg has."""
        table = self.iceberg
        return Table(table.name(), table.metadata, table.metadata_location, table.io, table.catalog, table.config)

    @property
    def schema(self) -> Any:
        """Its pyarrow Schema: see LakeTable."""
        return plain_schema(self.iceberg.metadata)

    @property
    def snapshot(self) -> int | None:
        """The id of its newest snapshot."""
        newest = self.iceberg.current_snapshot()
        return None if newest is None else newest.snapshot_id

    @property
    def identity(self) -> str:
        """See LakeTable."""
        return str(self.iceberg.metadata.table_uuid)

    @property
    def says(self) -> str:
        """See LakeTable."""
        return self.iceberg.properties.get("comment", "")

    def read(self, columns: Sequence[str], condition: Condition, keys: Collection[bytes] | None = None) -> Any:
        """A pyarrow Table of these columns of some rows: see LakeTable."""
        needed = list(dict.fromkeys([*columns, *(column for column, _, _ in condition)]))
        named = None if keys is None else pa.array(list(keys), pa.binary())
        parts = list[Any]()
        with self._catalog.answering(self.uri):
            for file in self.iceberg.scan(row_filter=expression(condition)).plan_files():
                rows = read_rows(self.iceberg, [file], needed).filter(pq.filters_to_expression(condition))
                parts.append(rows if named is None else rows.filter(pc.is_in(rows[columns[0]], named)))
            return pa.concat_tables([read_rows(self.iceberg, [], needed), *parts]).select(list(columns))

    def version_of(self, application: str) -> int | None:
        """What was last noted for an application id, as a property; None: nothing."""
        noted = self.iceberg.properties.get(application)
        return None if noted is None else int(noted)


def _noted(versions: Mapping[str, int]) -> dict[str, str]:
    return {application: str(version) for application, version in versions.items()}


def _typed(of: Any) -> Any:
    if pa.types.is_struct(of):
        return pa.struct([pa.field(field.name, _typed(field.type)) for field in of])
    if pa.types.is_list(of):
        return pa.list_(_typed(of.value_type))
    return pa.int32() if pa.types.is_int8(of) or pa.types.is_int16(of) else of
