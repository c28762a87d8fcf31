"""The bodies of requests that are no values of the operations."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, Field

from tailrace_server.operations.asking import Body

LONGEST_STATEMENT: Final = 10_000


class ResetBody(BaseModel):
    """Where to read from."""

    model_config = Body.__pydantic_config__

    start: str | None = Field(
        default=None,
        description="earliest, latest, or a time (ISO 8601). null: earliest, and with snapshot as it is",
    )
    snapshot: bool = Field(default=False, description="Read the tables again too, from their first range")
    offsets: dict[str, dict[int, int]] | None = Field(
        default=None, description="Or offsets by topic and partition; other partitions from their beginning"
    )


class SqlBody(BaseModel):
    """A statement."""

    model_config = Body.__pydantic_config__

    statement: str = Field(
        max_length=LONGEST_STATEMENT, description="One statement", examples=["SHOW SUBSCRIPTIONS LIKE 'shop.%'"]
    )
    check: bool = Field(default=True, description="Look at table, columns and sink before anything is kept")
