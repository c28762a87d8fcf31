"""The settings of stream ids and their generations."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tailrace_common.sections.section import Section


class GenerationSettings(Section):
    """Stream ids and their generations."""

    streams_per_entry: Annotated[int, Field(ge=1, le=4096)] = Field(
        default=1, description="Stream ids of each token range"
    )
    ignore_msb: Annotated[int, Field(ge=0, le=63)] = Field(
        default=0, description="Most significant token bits ignored in choosing among them; ScyllaDB's is 12"
    )
    ring_delay_seconds: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=30.0,
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
