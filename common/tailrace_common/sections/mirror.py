"""The settings of the mirror: a keyspace in which readers of ScyllaDB's tables find the generations."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import Field, field_validator

from tailrace_common.sections.section import Section

_KEYSPACE: Final = re.compile(r"\w{1,48}", re.ASCII)


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
