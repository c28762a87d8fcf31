"""The settings of cdc_raw: where it is, what becomes of its segments, and what is done when it is nearly full."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tailrace_common.sections.section import Section


class CdcRawSettings(Section):
    """The part of [agent] that is about the node's segments."""

    cdc_raw_directory: Path = Field(
        default=Path("/var/lib/cassandra/cdc_raw"), description="The node's cdc_raw_directory"
    )
    commitlog_directory: Path | None = Field(
        default=None,
        examples=["/var/lib/cassandra/commitlog"],
        description="The node's commitlog_directory: segments that somebody else deleted from cdc_raw are read from "
        "there, and `tailrace check` looks at it. Unset: what the node says of it, if it looks like it here",
    )
    early: bool = Field(
        default=False,
        description="Publish changes before Cassandra has flushed them, marked durable = false: in about 0.1 s, "
        "whatever commitlog_sync_period is. Changes that a crash of the machine took back are announced in the "
        "progress topic",
    )
    early_milliseconds: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=20, description="How often the log is looked at then: no event announces unflushed writes"
    )
    on_release: Literal["delete", "archive", "keep"] = Field(
        default="delete",
        description='What becomes of a segment once its last change is committed. "delete": it is deleted. "archive": '
        'it is moved to archive_directory. "keep": it stays in cdc_raw, for you to remove before that is full',
    )
    archive_directory: Path | None = Field(
        default=None,
        examples=["/var/lib/tailrace/archive"],
        description="Where segments are archived, in a directory for each host id and log epoch in it",
    )
    on_pressure: Literal["spool", "hold", "drop-oldest"] = Field(
        default="spool",
        description='What is done when cdc_raw is nearly full. "spool": move finished segments to spool_directory, '
        'and publish them from there. "hold": nothing, until Cassandra refuses writes to tables with cdc. '
        '"drop-oldest": delete the oldest unread, and report them as lost',
    )
    pressure_percent: Annotated[int, Field(ge=1, le=99)] = Field(
        default=75, description="cdc_raw counts as nearly full at so much of the node's cdc_total_space"
    )
    spool_directory: Path = Field(
        default=Path("/var/lib/tailrace/spool"),
        description="Where finished segments wait, in a directory for each host id; best on another disk",
    )
    spool_bytes: Annotated[int, Field(ge=0)] = Field(
        default=16 * 1024**3, description="How much may wait there; then cdc_raw is held"
    )

    @model_validator(mode="after")
    def _check_directories(self) -> Self:
        if self.on_release == "archive" and self.archive_directory is None:
            raise ValueError('on_release = "archive" needs archive_directory')
        for name in ("archive_directory", "spool_directory"):
            directory = getattr(self, name)
            if directory is not None and directory.absolute().is_relative_to(self.cdc_raw_directory.absolute()):
                raise ValueError(f"{name} is in cdc_raw_directory: what is moved there would count as before")
        return self
