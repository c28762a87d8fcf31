"""The agent's sections beside [agent] itself: cdc_raw, generations of streams, and their mirror in CQL."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from tailrace_common.sections.section import Section

RING_DELAY_SECONDS: Final = 30.0
"""Within which all hosts know of what one of them does, where no setting says otherwise."""
_KEYSPACE: Final = re.compile(r"\w{1,48}", re.ASCII)


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


class GenerationSettings(Section):
    """Stream ids and their generations."""

    streams_per_entry: Annotated[int, Field(ge=1, le=4096)] = Field(
        default=1, description="Stream ids of each token range"
    )
    ignore_msb: Annotated[int, Field(ge=0, le=63)] = Field(
        default=0, description="Most significant token bits ignored in choosing among them; ScyllaDB's is 12"
    )
    ring_delay_seconds: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=RING_DELAY_SECONDS,
        description="A changed ring gets its generation once it stayed the same for so long, to begin twice as long "
        "later. At least Cassandra's own ring delay, and the same for all agents",
    )
    poll_seconds: Annotated[float, Field(gt=0)] = Field(
        default=10.0, description="How often the node's ring is looked at, to catch changes without an event"
    )
    retention_days: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        examples=[30],
        description="Generations go so long after they ended: longer than changes may come late, and never before the "
        "tables' topics let changes go. Those of before the oldest are marked before_first. Unset: none goes",
    )


class MirrorSettings(Section):
    """A keyspace in the cluster that repeats the generations in ScyllaDB's tables, for readers of those."""

    keyspace: str | None = Field(
        default=None, examples=["tailrace"], description="The keyspace; agents write it. Unset: no mirror"
    )
    create: bool = Field(
        default=True, description="Make keyspace and tables that are missing. false: their owner makes them"
    )
    replication: dict[str, Annotated[int, Field(ge=1)]] | None = Field(
        default=None,
        examples=[{"dc1": 3}],
        description="Copies in each datacenter of a keyspace that is made. Unset: 3, or the nodes there if fewer",
    )
    stream_ids: Literal["blob", "tuple"] | None = Field(
        default=None,
        examples=["blob"],
        description='Form of the stream ids: "blob", as ScyllaDB\'s own clients read them, or "tuple" of two bigints. '
        "Unset: the form of existing tables, and blob in new ones",
    )
    v1: bool = Field(
        default=False, description="Write cdc_streams_descriptions too, for readers older than ScyllaDB 4.4"
    )

    @field_validator("keyspace")
    @classmethod
    def _check_keyspace(cls, value: str | None) -> str | None:
        if value is not None and not _KEYSPACE.fullmatch(value):
            raise ValueError("may have letters, digits and '_', at most 48 of them")
        if value is not None and (value == "system" or value.startswith("system_")):
            raise ValueError("is one of Cassandra's own keyspaces: choose another")
        return value
