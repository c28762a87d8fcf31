"""The options of the data source `tailrace-snapshot`, read and checked.

Spark shows options in plans and its web pages, so no secret is one: they come from files or from the environment.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from tailrace_common.secrets import is_secret_name, redact
from tailrace_common.sections.cassandra import CassandraSettings
from tailrace_common.sections.stream import ReadLimits
from tailrace_schemas.errors import SettingsError
from tailrace_spark.snapshot.ranges import Limits, TokenRange, parse_range

_FILES: Final = frozenset({"password_file", "tls_key_password_file"})
_SECRETS: Final = ("password", "tls_key_password")
_LISTS: Final = ("contact_points", "columns")
_MEBIBYTE: Final = 1 << 20


class SnapshotSettings(ReadLimits, CassandraSettings):
    """What is read, and how gently. `table` is KEYSPACE.TABLE."""

    table: str = Field(
        description="Table or view to read, KEYSPACE.TABLE, as Cassandra stores the names", examples=["shop.orders"]
    )
    rows: Literal["columns", "changes"] = Field(
        default="columns", description="The table's columns, or `read` changes as a table's topic has them"
    )
    prefix: str = Field(default="tailrace", description="Prefix of the topics that the changes are for")
    columns: tuple[str, ...] | None = Field(default=None, description="Columns to read, in this order. Unset: all")
    details: bool = Field(
        default=True, description="Read WRITETIME and TTL of each cell too, and bytes Spark cannot hold"
    )
    detail_prefix: str = Field(default="", description="Stands before the names writetime, ttl and raw")
    token_range: str | None = Field(default=None, description="Read only these tokens: START,END (after START, to END)")
    filter: str | None = Field(default=None, description="CQL condition that rows have to meet, checked by Cassandra")
    allow_filtering: bool = Field(default=False, description="Add ALLOW FILTERING: nodes then read more than they give")

    @field_validator("table")
    @classmethod
    def _check_table(cls, value: str) -> str:
        keyspace, _, name = value.partition(".")
        if not keyspace or not name:
            raise ValueError("must be KEYSPACE.TABLE")
        return value

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        if self.rows == "changes" and (self.columns is not None or not self.details):
            raise ValueError("changes have all columns and details: leave out columns and details")
        if self.rows_per_second is not None and self.concurrent_ranges is None:
            raise ValueError("rows_per_second needs concurrent_ranges: each of them gets its share")
        return self

    @property
    def name(self) -> tuple[str, str]:
        """Keyspace and table."""
        keyspace, _, name = self.table.partition(".")
        return keyspace, name

    @property
    def within(self) -> tuple[TokenRange, ...]:
        """The ranges to read. Raises SettingsError."""
        return (TokenRange(),) if self.token_range is None else parse_range(self.token_range)

    @property
    def limits(self) -> Limits:
        """How the read is cut."""
        octets = self.range_mebibytes * _MEBIBYTE
        return Limits(octets, self.ranges, self.concurrent_ranges, self.requests_per_node)

    @property
    def page_octets(self) -> int:
        """Most bytes of a page."""
        return self.page_mebibytes * _MEBIBYTE


def settings_of(options: Mapping[str, str], environ: Mapping[str, str]) -> SnapshotSettings:
    """The settings of a data source's options. Raises SettingsError, one line per fault, without any secret.

    `password_env` and `tls_key_password_env` name variables of `environ` that hold the secrets.
    """
    named: dict[str, Any] = {name.lower(): value for name, value in options.items()}
    if "path" in named:  # `load("shop.orders")`
        named.setdefault("table", named.pop("path"))
    for name in _SECRETS:
        if name in named:
            raise SettingsError(
                f"Spark shows options to everybody: give {name}_file, a file, or {name}_env, the name of a variable"
            )
        variable = named.pop(f"{name}_env", None)
        if variable is not None:
            if variable not in environ:
                raise SettingsError(f"{name}_env: there is no variable {variable} in the environment of Spark's driver")
            named[name] = environ[variable]
    for name in _LISTS:
        if name in named:
            named[name] = tuple([item.strip() for item in str(named[name]).split(",") if item.strip()])
    return _checked(named)


def contact_of(cluster: CassandraSettings) -> dict[str, object]:
    """How a cluster is reached, as options by name; files of secrets are read already."""
    return {name: getattr(cluster, name) for name in CassandraSettings.model_fields if name not in _FILES}


def settings_at(cluster: CassandraSettings, **options: object) -> SnapshotSettings:
    """How a table of a cluster is read, with other options of a data source. Raises as `settings_of`."""
    return _checked({**contact_of(cluster), **options})


def _checked(named: Mapping[str, Any]) -> SnapshotSettings:
    try:
        return SnapshotSettings(**named)
    except ValidationError as error:
        lines = [_explained(fault) for fault in error.errors(include_input=False, include_url=False)]
        raise SettingsError("\n".join(dict.fromkeys(lines))) from None


def _explained(fault: Any) -> str:
    """A fault that pydantic found in options, in a line without any secret."""
    name = ".".join(map(str, fault["loc"]))
    if fault["type"] == "extra_forbidden":
        near = difflib.get_close_matches(name, SnapshotSettings.model_fields, n=1)
        names = ", ".join(name for name in SnapshotSettings.model_fields if not is_secret_name(name))
        return f"unknown option {name}; " + (f"did you mean {near[0]}?" if near else f"options are {names}")
    message = redact(str(fault["msg"]).removeprefix("Value error, "))
    return f"option {name}: {message}" if name else message
