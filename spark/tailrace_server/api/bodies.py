"""The bodies of requests. What is unknown in them is refused, and no value of them is repeated in an error."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

Value = bool | int | float | str
LONGEST_STATEMENT: Final = 10_000


class Body(BaseModel):
    """One of them."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_surrogates(cls, data: Any) -> Any:
        """Halves of characters, which JSON can name: no answer could repeat them."""
        waiting = [data]
        while waiting:
            match waiting.pop():
                case str() as text:
                    if not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text):
                        raise ValueError("a text has a half of a character")
                case dict() as values:
                    waiting += [*values.keys(), *values.values()]
                case list() as items:
                    waiting += items
        return data


class SubscribeBody(Body):
    """A request for a table."""

    table: str = Field(description="KEYSPACE.TABLE, or a pattern with * and ?", examples=["shop.orders"])
    name: str = Field(description="The subscriber: unique for the table", examples=["warehouse"])
    target: str = Field(description="A [sink.NAME] of the servers' settings", examples=["warehouse"])
    options: dict[str, Value] = Field(
        default={}, description="Settings of the target that are a subscription's own", examples=[{"table": "{table}"}]
    )
    where: str | None = Field(default=None, description="Which changes the sink is given (docs/shaping.md)")
    columns: dict[str, str] = Field(default={}, description="What the sink sees of columns, by name")
    stream: dict[str, Value] = Field(default={}, description="Settings of [stream] for this one")
    start: str = Field(default="earliest", description="Where to begin: earliest, latest, or a time (ISO 8601)")


class AlterBody(Body):
    """What is to be another. null takes a setting away."""

    target: str | None = Field(default=None, description="Another [sink.NAME], which has what was written so far")
    options: dict[str, Value | None] = Field(default={}, description="Settings of the target that are this one's own")
    where: str | None = Field(default=None, description="The new condition; an empty one takes it away")
    columns: dict[str, str | None] = Field(default={}, description="What the sink sees of columns")
    stream: dict[str, Value | None] = Field(default={}, description="Settings of [stream]")
    revision: int | None = Field(default=None, description="As it was read: 409 where somebody changed it since")


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
    """A statement."""

    statement: str = Field(
        max_length=LONGEST_STATEMENT, description="One statement", examples=["SHOW SUBSCRIPTIONS LIKE 'shop.%'"]
    )
    check: bool = Field(default=True, description="Look at table, columns and sink before anything is kept")
