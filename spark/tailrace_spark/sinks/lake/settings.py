"""What the sections of lake sinks have in common."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tailrace_common.sections.section import DAY_SECONDS, Positive
from tailrace_common.sections.sink import StoredSettings


class LakeSettings(StoredSettings):
    """A table of the lake for each source table."""

    mode: Literal["history", "current"] = Field(
        default="history", description='"history": each change is a row; "current": each row of the source is one'
    )
    buckets: Annotated[int, Field(ge=1, le=4096)] = Field(
        default=12,
        description="Of a current table: partitions of its table in the lake, equal shares of the ring. It stays what "
        "it was when the table was made. Best a multiple of the partitions of the table's topic",
    )
    file_mebibytes: Positive = Field(default=128, description="A file is ended at about this size")
    merge_horizon_seconds: Annotated[int, Field(ge=0)] = Field(
        default=10 * DAY_SECONDS,
        description='With mode = "current" deletions are forgotten so long after they were written and came; older '
        "changes then go to dead letters. At least the tables' gc_grace_seconds and the topics' retention; 0: never",
    )
