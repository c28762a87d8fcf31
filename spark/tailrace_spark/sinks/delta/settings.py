"""The section of a sink that writes Delta tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from tailrace_common.sections.s3 import StoredSettings
from tailrace_common.sections.section import Positive

_DAY_SECONDS: Final = 86_400


class DeltaSinkSettings(StoredSettings):
    """A Delta table for each source table, on local disks or S3: docs/sinks/delta.md."""

    type: Literal["delta"] = Field(default="delta", description="What kind of sink this is")
    mode: Literal["history", "current"] = Field(
        default="history", description='"history": each change is a row; "current": each row of the source is one'
    )
    buckets: Annotated[int, Field(ge=1, le=4096)] = Field(
        default=16,
        description="Of a current table: partitions of its Delta table, by a hash of the partition key. It stays "
        "what it was when the table was made",
    )
    file_mebibytes: Positive = Field(default=128, description="A file is ended at about this size")
    merge_horizon_seconds: Annotated[int, Field(ge=0)] = Field(
        default=10 * _DAY_SECONDS,
        description='With mode = "current" deletions are forgotten so long after they were written and came; older '
        "changes then go to dead letters. At least the tables' gc_grace_seconds and the topics' retention; 0: never",
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_through(cls, data: object) -> object:
        if isinstance(data, Mapping) and "through" in data:
            raise ValueError(
                "through is no setting any more: delta-rs writes every Delta table, also those that Spark wrote "
                "before. Remove the line, and stop every stream that still writes these tables through Spark"
            )
        return data
