"""What sections of sinks that write below a path have in common: the path, and how S3 is reached."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, SecretStr, model_validator

from tailrace_common.secrets import carries_user
from tailrace_common.sections.sink import Dataset, SinkSettings, SourceTable
from tailrace_common.sections.template import directory_name


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
