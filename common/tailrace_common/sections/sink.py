"""What sections of sinks have in common: all of them; those with row images, transactions, or a path, local or on
S3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import Field, SecretStr, model_validator

from tailrace_common.secrets import carries_user
from tailrace_common.sections.section import DAY_SECONDS, Section
from tailrace_common.sections.template import directory_name


@dataclass(frozen=True, slots=True)
class Dataset:
    """Where data stands, by the naming conventions of OpenLineage; without secrets."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table that a stream follows; `prefix` is that of its topics, `kafka` the first HOST:PORT of its Kafka."""

    keyspace: str
    name: str
    prefix: str
    kafka: str


def first_server(servers: object) -> str:
    """The first HOST:PORT of `bootstrap.servers`."""
    return str(servers).split(",")[0].strip().rpartition("://")[2]


class SinkSettings(Section):
    """Where a stream writes. The section of each type is in the package of its store, as an entry point of
    `tailrace.sinks` in pyproject.toml names it."""

    by_subscription: ClassVar[frozenset[str]] = frozenset()
    """The settings that a subscription may set itself: names within the store that no other program's things have,
    and sizes. Whoever may subscribe reaches nothing else by them."""

    type: str = Field(examples=["sql"], description="What kind of sink this is")

    @property
    def location(self) -> str:
        """Where it writes, for people: without secrets."""
        raise NotImplementedError

    @property
    def identity(self) -> str:
        """What tells its store from others; not to be shown, as it may have a token."""
        return self.location

    def for_subscription(self, name: str) -> Self:  # noqa: ARG002
        """As one of several subscriptions into this target has it, by its sink's name."""
        return self

    @property
    def routed_by(self) -> Mapping[str, tuple[str, ...]]:
        """By the name of a setting, the columns of the partition key whose values it puts into names."""
        return {}

    def dataset(self, table: SourceTable) -> Dataset | None:  # noqa: ARG002
        """Where the sink writes a table, as its settings name it; None where nothing stays that could be read."""
        return None


class ImagesSection(SinkSettings):
    """A section of a sink that may give each change the images of its rows: docs/images.md."""

    images: SecretStr | None = Field(
        default=None,
        examples=["sqlite:///images.db"],
        description="Give each change its rows as they were before and are after it. SQLAlchemy URL of the database "
        "that keeps the rows for that, as of a SQL sink. Unset: no images",
    )
    images_file: Path | None = Field(
        default=None, examples=["/run/secrets/images-url"], description="File that holds the URL, instead of `images`"
    )
    images_horizon_seconds: Annotated[int, Field(ge=0)] = Field(
        default=10 * DAY_SECONDS,
        description="Deletions are forgotten so long after they were written and came; older changes then have no "
        "images. At least the tables' gc_grace_seconds and the topics' retention; 0: never",
    )


class TransactionsSection(ImagesSection):
    """A section of a sink that may keep the changes of a mutation together, and mark them: docs/transactions.md."""

    transactions: bool = Field(
        default=False,
        description="Deliver the changes of one mutation together, each marked with `transaction`: id, index and "
        "count. Not with images, filters, masks and one_copy_seconds; fixed once the stream has begun",
    )

    @model_validator(mode="after")
    def _check_transactions(self) -> Self:
        if self.transactions and self.images is not None:
            raise ValueError("transactions and images exclude each other: images are made of changes one by one")
        return self


class StoredSettings(SinkSettings):
    """A directory, local or on S3."""

    path: str = Field(
        examples=["s3://bucket/changes"],
        description="Directory that the files are below, of this stream alone: a local path, or s3://BUCKET/PATH",
    )
    region: str | None = Field(
        default=None, examples=["eu-central-1"], description="S3's region. Unset: as AWS's own tools find it"
    )
    endpoint: str | None = Field(
        default=None,
        examples=["http://minio:9000"],
        description="Address of an S3 that is not AWS's",
    )
    access_key: SecretStr | None = Field(
        default=None, examples=["..."], description="S3's access key. Unset: as AWS's own tools find both keys"
    )
    access_key_file: Path | None = Field(
        default=None, examples=["/run/secrets/s3-access-key"], description="File that holds it, instead of `access_key`"
    )
    secret_key: SecretStr | None = Field(default=None, examples=["..."], description="S3's secret key")
    secret_key_file: Path | None = Field(
        default=None, examples=["/run/secrets/s3-secret-key"], description="File that holds it, instead of `secret_key`"
    )

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if (self.access_key is None) != (self.secret_key is None):
            raise ValueError("access_key and secret_key are given both or not at all")
        if carries_user(self.path) or carries_user(self.endpoint or ""):
            raise ValueError("path and endpoint must be without keys: give access_key and secret_key")
        if self.path.rstrip("/") in ("", "s3:"):
            raise ValueError("path must name a directory, or s3://BUCKET/PATH")
        return self

    @property
    def location(self) -> str:
        """Where it writes, for people."""
        return self.path

    def below(self, table: SourceTable) -> str:
        """The path of a table below the directory."""
        return directory_name(table.keyspace, table.name)

    def dataset(self, table: SourceTable) -> Dataset:
        """The table's directory."""
        path, below = self.path.rstrip("/"), self.below(table)
        if not path.startswith("s3://"):
            return Dataset("file", str(Path(path).absolute() / below))
        bucket, _, key = path.removeprefix("s3://").partition("/")
        return Dataset(f"s3://{bucket}", f"{key}/{below}".lstrip("/"))
