"""The bodies of requests. What is unknown in them is refused, and no value of them is repeated in an error."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Body(BaseModel):
    """One of them."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, frozen=True)


class SubscribeBody(Body):
    """A request for a table."""

    table: str = Field(description="KEYSPACE.TABLE, or a pattern with * and ?", examples=["shop.orders"])
    name: str = Field(description="The subscriber: unique for the table", examples=["warehouse"])
    sink: dict[str, Any] = Field(
        description="The settings of a [sink.NAME] with its type, secrets too, and no names of files",
        examples=[{"type": "sql", "url": "postgresql://user:password@host/database"}],
        repr=False,
    )
    where: str | None = Field(default=None, description="Which changes the sink is given (docs/shaping.md)")
    columns: dict[str, str] = Field(default={}, description="What the sink sees of columns, by name")
    stream: dict[str, Any] = Field(default={}, description="Settings of [stream] for this one")
    start: str = Field(default="earliest", description="Where to begin: earliest, latest, or a time (ISO 8601)")


class AlterBody(Body):
    """What is to be another. null takes a setting away."""

    sink: dict[str, Any] = Field(default={}, description="Settings of the sink", repr=False)
    where: str | None = Field(default=None, description="The new condition; an empty one takes it away")
    columns: dict[str, str | None] = Field(default={}, description="What the sink sees of columns")
    stream: dict[str, Any] = Field(default={}, description="Settings of [stream]")


class ResetBody(Body):
    """Where to read from."""

    start: str | None = Field(
        default=None,
        description="earliest, latest, or a time (ISO 8601). null: earliest, and with snapshot as it is",
    )
    snapshot: bool = Field(default=False, description="Read the tables again too, from their first range")
    offsets: dict[str, dict[int, int]] | None = Field(
        default=None, description="Or offsets by topic and partition; other partitions from their beginning"
    )


class SqlBody(Body):
    """A statement, with what is secret beside it."""

    statement: str = Field(description="One statement", examples=["SHOW SUBSCRIPTIONS LIKE 'shop.%'"])
    values: dict[str, Any] = Field(default={}, description="The values of :NAME in it", repr=False)
    check: bool = Field(default=True, description="Look at table, columns and sink before anything is kept")
