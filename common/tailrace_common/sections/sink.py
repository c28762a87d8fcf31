"""What every [sink.NAME] has, whatever its type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from pydantic import Field

from tailrace_common.sections.section import Section


@dataclass(frozen=True, slots=True)
class Dataset:
    """Where data stands, by the naming conventions of OpenLineage; without secrets."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table that a stream follows; `prefix` is that of its topics, `kafka` the first HOST:PORT of its Kafka."""

    keyspace: str
    name: str
    prefix: str
    kafka: str


def first_server(servers: object) -> str:
    """The first HOST:PORT of `bootstrap.servers`."""
    return str(servers).split(",")[0].strip().rpartition("://")[2]


class SinkSettings(Section):
    """Where a stream writes. The section of each type is in the package of its store, as an entry point of
    `tailrace.sinks` in pyproject.toml names it."""

    by_subscription: ClassVar[frozenset[str]] = frozenset()
    """The settings that a subscription may set itself: names within the store that no other program's things have,
    and sizes. Whoever may subscribe reaches nothing else by them."""

    type: str = Field(examples=["sql"], description="What kind of sink this is")

    @property
    def location(self) -> str:
        """Where it writes, for people: without secrets."""
        raise NotImplementedError

    @property
    def identity(self) -> str:
        """What tells its store from others; not to be shown, as it may have a token."""
        return self.location

    def for_subscription(self, name: str) -> Self:  # noqa: ARG002
        """As one of several subscriptions into this target has it, by its sink's name."""
        return self

    @property
    def routed_by(self) -> Mapping[str, tuple[str, ...]]:
        """By the name of a setting, the columns of the partition key whose values it puts into names."""
        return {}

    def dataset(self, table: SourceTable) -> Dataset | None:  # noqa: ARG002
        """Where the sink writes a table, as its settings name it; None where nothing stays that could be read."""
        return None
