"""The Iceberg catalog of a sink: its properties, the tables that it knows, and its errors as ours."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final
from urllib.parse import unquote, urlsplit
from weakref import finalize

import pyarrow as pa
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
from pyiceberg.table import Table

from tailrace_common.secrets import REDACTED, redact
from tailrace_schemas.errors import ServiceError, TailraceError
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
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
