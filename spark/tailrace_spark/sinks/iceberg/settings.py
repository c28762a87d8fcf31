"""The section of a sink that writes Iceberg tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from tailrace_common.properties.names import ICEBERG_CATALOG, misspelled
from tailrace_common.properties.passthrough import Properties, Scalar
from tailrace_common.sections.sink import SourceTable
from tailrace_spark.sinks.lake.settings import LakeSettings

_NAMED: Final = ("type", "py-catalog-impl")
_TYPES: Final = ("sql", "rest", "hive", "glue", "dynamodb", "bigquery")
_HOW: Final = "docs/sinks/iceberg.md says how tables move on"
_OF_JAVA: Final = {
    "catalog-impl": f"names a class of Java: the sink's catalogs are pyiceberg's, by type or py-catalog-impl; {_HOW}",
    "io-impl": "names a class of Java: files are read and written by pyarrow",
    "clients": "belongs to Iceberg's JDBC catalog",
}


class CatalogSettings(Properties):
    """An Iceberg catalog's properties, by pyiceberg's own names: `type`, `uri`, `token`..."""

    owned: ClassVar[Mapping[str, str]] = {"py-io-impl": "files are read and written by pyarrow"}
    examples: ClassVar[Mapping[str, Scalar]] = {"type": "rest", "uri": "https://catalog:8181"}
    secrets: ClassVar[frozenset[str]] = frozenset({"token", "uri", "header.Authorization"})
    """A SQL catalog's `uri` has user and password."""

    @classmethod
    def known(cls) -> Collection[str]:
        """As Properties says."""
        return ICEBERG_CATALOG

    @classmethod
    def fault(cls, name: str, value: Scalar, configured: Collection[str]) -> str | None:  # noqa: ARG003
        """A catalog takes no notice of names that it does not have, and each kind has others."""
        if name in _OF_JAVA or name.startswith("jdbc."):
            return _OF_JAVA.get(name, _OF_JAVA["clients"])
        if name == "type" and value not in _TYPES:
            return _type_fault(str(value))
        return misspelled(name, ICEBERG_CATALOG)


def _type_fault(kind: str) -> str:
    if kind == "jdbc":
        return (
            'jdbc is Iceberg\'s Java; the same catalog is type = "sql", '
            'uri = "postgresql+psycopg://USER:PASSWORD@HOST/DATABASE", and has the same tables'
        )
    if kind == "hadoop":
        return (
            "a directory without a catalog cannot tell which commit came first: leave [catalog] out for a catalog in "
            f"SQLite beside the tables; {_HOW}"
        )
    return f"must be one of {', '.join(_TYPES)}"


class IcebergSinkSettings(LakeSettings):
    """An Iceberg table for each source table, on local disks or S3, in a catalog: docs/sinks/iceberg.md."""

    type: Literal["iceberg"] = Field(default="iceberg", description="What kind of sink this is")
    path: str = Field(
        examples=["/var/lib/tailrace/lake"],
        description="The warehouse: directory that the tables are below, a local path, or s3://BUCKET/PATH",
    )
    catalog: CatalogSettings = Field(
        default=CatalogSettings({}),
        description="The catalog that knows the tables, by pyiceberg's own names. Unset: a SQLite database in the "
        "directory, on local disks",
    )
    namespace: str | None = Field(
        default=None,
        examples=["raw.cassandra"],
        description="Namespace of the catalog that keyspaces are below. Unset: they stand at its top",
    )

    @model_validator(mode="after")
    def _check_catalog(self) -> Self:
        named = [name for name in _NAMED if name in self.catalog.root]
        if self.catalog.root and len(named) != 1:
            raise ValueError(f"catalog needs one of {' and '.join(_NAMED)}")
        if "warehouse" in self.catalog.root and self.catalog.root.get("type") != "rest":
            raise ValueError(
                'catalog.warehouse is not yours to set: it is the sink\'s path, but for a catalog of type = "rest"'
            )
        if "://" in self.path and not self.remote:
            raise ValueError(f"path is a directory or begins with s3://, unlike {self.path}")
        if self.remote and not named:
            raise ValueError(
                'catalog is not set: on S3 one has to tell which commit came first, such as type = "sql" or "rest"'
            )
        if self.namespace is not None and not all(self.namespace.split(".")):
            raise ValueError("namespace must be names with dots between them")
        return self

    @property
    def remote(self) -> bool:
        """Whether it is on S3."""
        return self.path.startswith("s3://")

    @property
    def identity(self) -> str:
        """What tells one lake from another; not to be shown: of a warehouse several catalogs and namespaces may be."""
        catalog = self.catalog.reveal()
        properties = [str(catalog[name]) for name in (*_NAMED, "uri", "warehouse") if name in catalog]
        return " ".join((self.path, *properties, *(() if self.namespace is None else (self.namespace,))))

    def below(self, table: SourceTable) -> str:
        """Namespace and name are directories, where the catalog does not decide that."""
        keyspace, _, name = super().below(table).partition(".")
        return "/".join((*(() if self.namespace is None else self.namespace.split(".")), keyspace, name))
