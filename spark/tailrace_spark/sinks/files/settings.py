"""The section of a sink that writes files."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from tailrace_common.sections.section import Positive
from tailrace_common.sections.sink import StoredSettings, TransactionsSection


class FilesSinkSettings(StoredSettings, TransactionsSection):
    """Files of changes by table and day, Parquet or JSON lines, on local disks or S3: docs/sinks/files.md."""

    type: Literal["files"] = Field(default="files", description="What kind of sink this is")
    format: Literal["parquet", "jsonl"] = Field(default="parquet", description='"parquet", or "jsonl": JSON lines')
    compress: bool = Field(default=True, description="Compress them: Parquet by Zstandard, JSON lines by gzip")
    file_mebibytes: Positive = Field(default=256, description="A file is ended when it has this size")
    tls_ca_file: Path | None = Field(
        default=None,
        examples=["/etc/tailrace/s3-ca.pem"],
        description="PEM file of the authorities to trust. Unset: the system's",
    )

    def for_subscription(self, name: str) -> Self:
        """In a directory of its own: below one directory writes one stream."""
        return self.model_copy(update={"path": f"{self.path.rstrip('/')}/{name}"})

    @model_validator(mode="after")
    def _check_images(self) -> Self:
        if self.images is not None and self.format != "jsonl":
            raise ValueError('images stand in JSON only: set format = "jsonl"')
        if self.transactions and self.format != "jsonl":
            raise ValueError('transactions stand in JSON only: set format = "jsonl"')
        return self
