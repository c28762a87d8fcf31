"""The section of the settings for snapshots: how gently tables are read while they are somebody's production."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tailrace_common.sections.section import Positive, Seconds, Section


class ReadLimits(Section):
    """How tables of Cassandra are read by token ranges."""

    datacenter: str | None = Field(
        default=None,
        examples=["dc1"],
        description="Datacenter to read in. Unset: the first contact point's",
    )
    consistency: Literal["ONE", "TWO", "THREE", "QUORUM", "LOCAL_ONE", "LOCAL_QUORUM", "EACH_QUORUM", "ALL"] = Field(
        default="LOCAL_QUORUM", description="Consistency level"
    )
    page_rows: Positive = Field(default=5000, description="Most rows of a page")
    page_mebibytes: Positive = Field(default=8, description="Most bytes of a page, as far as earlier pages tell")
    range_mebibytes: Positive = Field(default=64, description="Estimated bytes of a token range that is read as one")
    ranges: Positive = Field(default=32, description="Least number of token ranges of the whole ring")
    concurrent_ranges: Positive | None = Field(
        default=None, examples=[4], description="Most ranges read at once. Unset: by Spark's cores"
    )
    requests_per_node: Positive | None = Field(
        default=None, examples=[2], description="Most requests under way at a node at once"
    )
    rows_per_second: Annotated[float, Field(gt=0)] | None = Field(
        default=None, examples=[20000], description="Most rows a second, of all tasks together"
    )
    attempts: Positive = Field(default=8, description="How often a page is asked for before the task fails")
    retry_seconds: Seconds = Field(default=0.25, description="Wait before the second attempt; doubled each time")
    allow_masked_values: bool = Field(
        default=False,
        description="Take masked values for data where Cassandra masks columns for this role. false: refuse them",
    )


class SnapshotLimits(ReadLimits):
    """How a stream reads tables as they are now, which `stream.snapshot` and `tailrace snapshot` ask for."""
