"""Delta tables below a path, through delta-rs: what a sink does with them. The one module that knows deltalake."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from tailrace_common.settings_sink_delta import DeltaSinkSettings
from tailrace_schemas.errors import ServiceError, SettingsError

_S3: Final = "s3://"
# Some tries within half a minute; then the batch is delivered again, and says what it waits for.
_PATIENCE: Final = {"max_retries": "5", "retry_timeout": "30s", "connect_timeout": "10s"}
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


class DeltaStore:
    """The Delta tables below the path of a section. Raises ServiceError where the store does not answer."""

    def __init__(self, settings: DeltaSinkSettings) -> None:
        """Raises SettingsError for a path of another kind than a directory or s3://."""
        self._remote = settings.path.startswith(_S3)
        if "://" in settings.path and not self._remote:
            raise SettingsError(f"a delta sink's path is a directory or begins with {_S3}, unlike {settings.path}")
        self._root = settings.path.rstrip("/") if self._remote else os.path.abspath(settings.path)
        self._options = _options(settings) if self._remote else {}
        self._file_bytes = settings.file_mebibytes << 20

    def reach(self) -> None:
        """See that the directory may be written, or the bucket answers. Raises ServiceError."""
        if self._remote:
            with _answering(self._root):
                DeltaTable.is_deltatable(f"{self._root}/tailrace", self._options)
            return
        root = PurePath(self._root)
        nearest = next(place for place in (root, *root.parents) if os.path.exists(place))
        if not (os.path.isdir(nearest) and os.access(nearest, os.W_OK)):
            raise ServiceError(f"{nearest} is no directory that this user may write")

    def open(self, name: str) -> StoredTable | None:
        """The table of a name below the path, as it is now; None where there is none."""
        uri = self.uri(name)
        with _answering(uri):
            try:
                return StoredTable(DeltaTable(uri, storage_options=self._options or None))
            except TableNotFoundError:
                return None

    def uri(self, name: str) -> str:
        """Where the table of a name is."""
        return f"{self._root}/{name}"

    def append(
        self,
        name: str,
        table: StoredTable | None,
        batches: Any,
        versions: Mapping[str, int],
        *,
        partitioned_by: str | None = None,
        says: str = "",
    ) -> None:
        """Add rows in one commit, which also notes a version for each application id.

        `batches` is a pyarrow RecordBatchReader; what its schema has more than the table's is added to that. `table`
        is as `open` gave it; where another writer noted a version of one of these ids since, or made the table,
        nothing is written, and ServiceError raised. A table that is not there is made; `says` describes it.
        """
        noted = CommitProperties(app_transactions=[Transaction(app, at) for app, at in sorted(versions.items())])
        with _answering(self.uri(name)):
            write_deltalake(
                self.uri(name) if table is None else table.delta,
                batches,
                mode="error" if table is None else "append",
                schema_mode="merge" if table is not None else None,
                partition_by=[partitioned_by] if partitioned_by and table is None else None,
                description=says if table is None else None,
                storage_options=self._options or None,
                target_file_size=self._file_bytes,
                commit_properties=noted,
            )


class StoredTable:
    """One table as it was at one version."""

    def __init__(self, delta: DeltaTable) -> None:
        self.delta = delta

    @property
    def schema(self) -> Any:
        """Its pyarrow Schema, in plain types: no large or view strings, lists whose elements are `item`."""
        return pa.schema([pa.field(field.name, _plain(field.type)) for field in pa.schema(self.delta.schema())])

    def version_of(self, application: str) -> int | None:
        """What was last noted for an application id; None: nothing."""
        return self.delta.transaction_version(application)


def _plain(of: Any) -> Any:
    if pa.types.is_struct(of):
        return pa.struct([pa.field(field.name, _plain(field.type)) for field in of])
    if pa.types.is_list(of) or pa.types.is_large_list(of) or pa.types.is_list_view(of):
        return pa.list_(_plain(of.value_type))
    if pa.types.is_large_string(of) or pa.types.is_string_view(of):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(of) or pa.types.is_binary_view(of) else of


@contextmanager
def _answering(uri: str) -> Iterator[None]:
    """What deltalake raises, as ours; its messages have no credentials in them."""
    try:
        yield
    except CommitFailedError as error:
        raise ServiceError(f"{uri}: another writer came first: {_said(error)}") from error
    except (DeltaError, OSError) as error:
        raise ServiceError(f"{uri}: {_said(error)}") from error


def _said(error: Exception) -> str:
    """A message in one line, without colours."""
    return " ".join(_COLOURS.sub("", str(error)).replace("↳", "").split())


def _options(settings: DeltaSinkSettings) -> dict[str, str]:
    """What S3's client of delta-rs is told; what is not said it finds as AWS's own tools do."""
    secret = settings.secret_key
    said = {
        "AWS_ACCESS_KEY_ID": None if settings.access_key is None else settings.access_key.get_secret_value(),
        "AWS_SECRET_ACCESS_KEY": None if secret is None else secret.get_secret_value(),
        "AWS_REGION": settings.region,
        "AWS_ENDPOINT_URL": settings.endpoint,
        "AWS_ALLOW_HTTP": "true" if (settings.endpoint or "").startswith("http://") else None,
    }
    return {**_PATIENCE, **{name: value for name, value in said.items() if value is not None}}
